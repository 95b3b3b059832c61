"""Sparse logistic regression: which few of many features matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, embedding

from dtoolkit.data import stdlib_calls
from dtoolkit.training.task import Examples, Loss, Task
from dtoolkit.training.tasks.options import Make, chosen_optimizer, count, number, test_part

__all__ = ["sparse_logistic"]

NEAR_ZERO = 0.1  # of the largest weight: what is smaller counts as not selected
Source = Examples | Callable[[], Examples]
_USUAL = {"sgd": 0.2, "momentum": 0.02, "adam": 0.01}
_USUAL_CALLS = {"sgd": 2.0, "momentum": 0.2, "adam": 0.01}


def sparse_logistic(
    *,
    data: Literal["generated", "stdlib_calls"] = "generated",
    samples: int = 2000,
    features: int = 400,
    support: int = 10,
    data_seed: int = 0,
    l1: float | None = None,
    batch: int = 128,
    lr: float | None = None,
    optimizer: str | Make = "sgd",
) -> Task:
    """Logistic regression with an L1 penalty, which selects few of many features.

    With ``data="generated"`` inputs are float32 of shape (n, features), standard normal; all but
    ``support`` of the true weights are zero, the others between 1 and 2 with either sign; targets,
    float32 of shape (n,), are 1 with the probability that these weights say, so nobody is right
    about all of them. Which features matter is known, and the metric ``support`` says how well they
    were found.

    With ``data="stdlib_calls"`` samples are the functions of :func:`dtoolkit.data.stdlib_calls`,
    features the names that they call (about 11,850 and 2,250 in Python 3.11), and the target is 1
    where the function's own name begins with an underscore: can one tell that a function is private
    from what it calls? Inputs are int32 of shape (n, most names of a function), the numbers of the
    names, filled up with the number of features. The learned weights are read by name in
    ``stdlib_calls().column_labels``. ``samples``, ``features``, ``support`` and ``data_seed`` say
    nothing there.

    Sample i is for the test where i % 5 == 4. The penalty is ``l1`` times the sum of the absolute
    weights, added once a step whatever the number of workers (``Task.penalty``); the bias is free.

    Generated data, 300 steps in one process (measured, seeds 0 to 4): exactly the right features
    (``support`` 1.0), test accuracy 86.0%, 85.0 to 87.0; the true weights have 85.8%. Without the
    penalty 45 features are selected (``support`` 0.36), and accuracy falls to 81.8%. The calls:
    68.3% with 16 names, 71.5% with 65 without the penalty; 63.5% of the functions are not private.

    Parameters
    ----------
    data : {"generated", "stdlib_calls"}
        What to learn from.
    samples, features, support : int
        Size of what is generated.
    data_seed : int
        Of the generator. The seed of a training run changes other things.
    l1 : float, optional
        Weight of the penalty; by default 0.03, and 0.001 for the calls.
    batch : int
        Samples a step, of all workers together.
    lr : float, optional
        Learning rate; by default 0.2 for SGD, 0.02 with momentum, 0.01 for Adam (2, 0.2 and 0.01
        for the calls, whose features are mostly zero).
    optimizer : {"sgd", "momentum", "adam"} or callable
        Plain SGD, SGD with momentum 0.9, Adam, or a callable of the parameters.

    Returns
    -------
    Task
        Loss: logistic (nats), without the penalty. Metrics: ``accuracy``; ``selected``, the share
        of features whose weight is at least a tenth of the largest one; and for generated data
        ``support``, twice the features rightly selected over those selected plus those that
        matter (F1): 1 where exactly the right ones are.

    Raises
    ------
    TypeError, ValueError
        For options out of range.
    FileNotFoundError
        If the interpreter comes without the sources of its standard library.

    Notes
    -----
    R. Tibshirani, Regression shrinkage and selection via the lasso, JRSS B 58(1), 1996. Subgradient
    steps leave small weights around zero, so a weight counts as zero below a tenth of the largest.
    """
    if data not in ("generated", "stdlib_calls"):
        raise ValueError(f"data={data!r}: wanted 'generated' or 'stdlib_calls'")
    generated = data == "generated"
    size = (count("samples", samples, 5), count("features", features), count("support", support))
    if size[2] > size[1]:
        raise ValueError(f"support={support}: want at most features={features}")
    count("data_seed", data_seed, 0)
    strength = number("l1", (0.03 if generated else 0.001) if l1 is None else l1, least=0.0)
    metrics: dict[str, Loss] = {"accuracy": _accuracy, "selected": _selected_share}
    if generated:
        metrics["support"] = SupportFound(_true_support(*size[1:], data_seed))
        train: Source = partial(_generated, *size, data_seed, False)
        test: Source = partial(_generated, *size, data_seed, True)
        model = partial(_make, DenseLogistic, size[1])
    else:
        # Made here: each worker would parse the whole library for seconds.
        train, test = _calls(False), _calls(True)
        model = partial(_make, NamedLogistic, stdlib_calls().shape[1])
    return Task(
        name="sparse-logistic" if generated else "sparse-logistic-calls",
        model=model,
        train=train,
        test=test,
        loss=_loss,
        metrics=metrics,
        optimizer=chosen_optimizer(optimizer, lr, _USUAL if generated else _USUAL_CALLS),
        penalty=partial(_l1, strength),
        batch=count("batch", batch),
        citation="R. Tibshirani, Regression shrinkage and selection via the lasso, JRSS B 58(1), "
        "1996",
    )


class DenseLogistic(nn.Module):
    """Logits of dense features: ``weights`` of shape (features,), zero at first, and a ``bias``."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(features))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map float inputs of shape (n, features) to logits of shape (n,)."""
        return inputs @ self.weights + self.bias


class NamedLogistic(DenseLogistic):
    """Logits of features that are 0 or 1, given by the numbers of those that are 1."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Map int inputs of shape (n, most), filled up with ``features``, to logits (n,)."""
        padded = torch.cat([self.weights, self.weights.new_zeros(1)])
        return embedding(inputs, padded[:, None]).sum(dim=(1, 2)) + self.bias


@dataclass(frozen=True)
class SupportFound:
    """Metric: how well the features that matter were found (F1), the same for each sample.

    Attributes
    ----------
    support : tuple of int
        Features that matter.
    """

    support: tuple[int, ...]

    def __call__(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the share, repeated for each sample: shape (n,)."""
        chosen = _selected(model)
        right = chosen[list(self.support)].sum()
        return (2 * right / (chosen.sum() + len(self.support))).expand(len(targets))


def _loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(model(inputs), targets, reduction="none")


def _accuracy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return ((model(inputs) > 0) == (targets > 0.5)).float()


def _selected_share(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return _selected(model).float().mean().expand(len(targets))


def _selected(model: nn.Module) -> Tensor:
    weights = model.get_parameter("weights").detach().abs()
    return (weights > 0) & (weights >= NEAR_ZERO * weights.max())


def _make(kind: type[DenseLogistic], features: int) -> nn.Module:
    return kind(features)


def _l1(strength: float, model: nn.Module) -> Tensor:
    return strength * model.get_parameter("weights").abs().sum()


def _true_support(features: int, support: int, seed: int) -> tuple[int, ...]:
    chosen = np.random.default_rng((seed, 1)).permutation(features)[:support]
    return tuple(sorted(chosen.tolist()))


@lru_cache(maxsize=2)
def _generated(samples: int, features: int, support: int, seed: int, test: bool) -> Examples:
    """Draw everything anew from the seed, so that nothing has to travel."""
    rng = np.random.default_rng((seed, 0))
    weights = np.zeros(features)
    where = list(_true_support(features, support, seed))
    weights[where] = rng.choice((-1.0, 1.0), support) * rng.uniform(1, 2, support)
    inputs = rng.standard_normal((samples, features))
    targets = rng.random(samples) < 1 / (1 + np.exp(-inputs @ weights))
    chosen = (test_part(samples) == test).numpy()
    return Examples(
        torch.tensor(inputs[chosen], dtype=torch.float32),
        torch.tensor(targets[chosen], dtype=torch.float32),
    )


@lru_cache(maxsize=2)
def _calls(test: bool) -> Examples:
    calls = stdlib_calls()
    functions, names = calls.shape
    counts = np.diff(calls.matrix.indptr)
    inputs = np.full((functions, counts.max()), names, np.int32)
    inputs[np.arange(counts.max()) < counts[:, None]] = calls.matrix.indices
    own = [label.rpartition(":")[2].rpartition(".")[2] for label in calls.row_labels]
    targets = np.array([name.startswith("_") for name in own], np.float32)
    chosen = (test_part(functions) == test).numpy()
    return Examples(torch.from_numpy(inputs[chosen]), torch.from_numpy(targets[chosen]))
