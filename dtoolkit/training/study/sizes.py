"""How large a model is: what a study needs to know of one that it may never make."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dtoolkit.comm.amounts import count_text
from dtoolkit.training.seeds import seeded
from dtoolkit.training.task import check_task, load_examples

__all__ = ["MT5", "ModelSize", "model_of"]

MT5 = {
    "580M": (580_000_000, 768, 24),
    "1.2B": (1_200_000_000, 1024, 48),
    "3.7B": (3_700_000_000, 2048, 48),
    "13B": (13_000_000_000, 4096, 48),
}
"""Parameters, width, and layers of both halves together, of mT5 (Xue et al., arXiv 2010.11934)."""

_KEPT = 34  # bytes of activations a token, feature and layer in half precision
_WIDE = 100  # width over layers, where nobody says
_MODES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


@dataclass(frozen=True)
class ModelSize:
    """What a model costs a worker.

    Attributes
    ----------
    name : str
    parameters : int
        Of them are weights, gradients and the optimizer's state.
    flops : float
        Operations of a sample, forward and backward.
    activation : float
        Bytes that a sample's forward pass keeps for its backward pass.
    task : Task or None
        What can be trained; None: it can be modelled alone.
    """

    name: str
    parameters: int
    flops: float
    activation: float
    task: Any = field(default=None, repr=False)

    @classmethod
    def transformer(
        cls,
        parameters: int | float,
        *,
        tokens: int = 512,
        width: int | None = None,
        layers: int | None = None,
        name: str | None = None,
    ) -> ModelSize:
        """Size of a transformer, by formula.

        Operations of a sample are 6 x parameters x tokens; activations are 34 bytes a token,
        feature and layer (half precision, attention that keeps no scores: Korthikanti et al.,
        arXiv 2205.05198, equation 2 without its second term).

        Parameters
        ----------
        parameters : int
        tokens : int
            Of a sample.
        width, layers : int, optional
            By default those of a decoder with 12 x layers x width^2 parameters that is 100 times
            as wide as it has layers.
        name : str, optional

        Raises
        ------
        TypeError, ValueError
            Naming the argument.
        """
        count = _whole("parameters", parameters)
        length = _whole("tokens", tokens)
        deep = max(1, round((count / (12 * _WIDE**2)) ** (1 / 3)))
        deep = deep if layers is None else _whole("layers", layers)
        wide = max(1, round(math.sqrt(count / (12 * deep))))
        wide = wide if width is None else _whole("width", width)
        return cls(
            name=name or count_text(count),
            parameters=count,
            flops=6.0 * count * length,
            activation=float(_KEPT * length * wide * deep),
        )

    @classmethod
    def of_task(cls, task: Any, *, name: str | None = None, seed: int = 0) -> ModelSize:
        """Count what a task's model costs: parameters, operations, and what backward keeps.

        The model is made here and given two samples of the training set. Operations are those of
        matrix products, convolutions and attention, as torch counts them.

        Parameters
        ----------
        task : Task
        name : str, optional
            By default the task's.
        seed : int
            Under which the model is made.

        Raises
        ------
        TypeError, ValueError
            It is no task, or its model fails on two samples.
        """
        check_task(task)
        with torch.random.fork_rng([]), seeded(seed, "model"):
            model = task.model()
            if not isinstance(model, nn.Module):
                raise TypeError(f"task.model() gave {model!r}: wanted an nn.Module")
            examples = load_examples(task.train, "train")
            pair = examples.take(torch.arange(2) % len(examples))
            flops, kept = _counted(task, model.train(), pair)
        learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
        return cls(name or str(task.name), learned, flops / 2, kept / 2, task)


def model_of(value: Any, *, name: str | None = None, tokens: int = 512, seed: int = 0) -> ModelSize:
    """Read an entry of ``models=``: a size, a task, a number of parameters, or text such as "13B".

    Raises
    ------
    TypeError, ValueError
        It is none of these.
    """
    if isinstance(value, ModelSize):
        return value if name is None else replace(value, name=name)
    if isinstance(value, str):
        if value in MT5:
            count, width, layers = MT5[value]
            return ModelSize.transformer(
                count, width=width, layers=layers, tokens=tokens, name=name or value
            )
        return ModelSize.transformer(_read(value), tokens=tokens, name=name or value)
    if isinstance(value, bool):
        raise TypeError(f"models: {value!r} is no model")
    if isinstance(value, int | float):
        return ModelSize.transformer(value, tokens=tokens, name=name)
    if not callable(getattr(value, "model", None)):
        raise TypeError(
            f"models: {value!r} is {type(value).__name__}: wanted a task, a ModelSize, a number of "
            'parameters, or text such as "13B"'
        )
    return ModelSize.of_task(value, name=name, seed=seed)


def _counted(task: Any, model: nn.Module, pair: Any) -> tuple[float, float]:
    """Operations of forward and backward, and bytes that are kept between them."""
    own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    # Samples are there in any case.
    own |= {one.untyped_storage().data_ptr() for one in pair if _dense(one)}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if _dense(tensor) and (storage := tensor.untyped_storage()).data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = task.loss(model, *pair).sum()
        if loss.requires_grad:
            loss.backward()
    model.zero_grad(set_to_none=True)
    return float(counter.get_total_flops()), float(sum(kept.values()))


def _dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _read(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKmMbBgGtT]?)\s*", text)
    if match is None:
        raise ValueError(
            f'models: {text!r} is no size: wanted a number of parameters such as "580M" or "13B", '
            f"of which {', '.join(MT5)} have mT5's shape"
        )
    return round(float(match[1]) * _MODES.get(match[2].lower(), 1.0))


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError(f"{name}={value!r}: wanted a whole number")
    if value < 1:
        raise ValueError(f"{name}={value!r}: wanted at least 1")
    return int(value)
