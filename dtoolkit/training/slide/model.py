"""A network for very many classes: sparse inputs, one hidden layer, very many outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from dtoolkit.arrays.layout import Layout
from dtoolkit.training.slide.bag import BagLinear
from dtoolkit.training.slide.output import OutputLinear
from dtoolkit.training.sparse_examples import Bags

__all__ = ["SlideModel"]

_AT_ONCE = 1 << 23  # logits that are held at a time where all are computed


class SlideModel(nn.Module):
    """A hidden layer of sparse inputs with ReLU, and an output layer.

    Parameters
    ----------
    features, hidden, classes : int
    output : callable
        ``output(hidden, classes, seed=, rows=)`` makes the output layer, such as
        :class:`SlideLinear` with its settings; or ``output(hidden, classes)`` a ``nn.Linear``,
        with `full`.
    full : bool
        The output layer is a ``nn.Linear``: all logits of all samples, dense gradients.
    units : callable, optional
        ``units(features, hidden, seed=)`` makes a hashed hidden layer (:class:`HashedBag`).

    Attributes
    ----------
    hidden : BagLinear
    output : OutputLinear or nn.Linear
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        classes: int,
        output: Callable[..., nn.Module],
        *,
        full: bool = False,
        units: Callable[..., BagLinear] | None = None,
    ) -> None:
        super().__init__()
        self.features, self.classes, self._made_by, self._full = features, classes, output, full
        self._units = units
        if full:
            self.hidden = BagLinear(features, hidden, factors=False)
            self.output = output(hidden, classes)
        else:
            self._seed = int(torch.randint(2**31, ()))
            self.hidden = self._hidden(hidden)
            self.output = output(hidden, classes, seed=self._seed, rows=None)

    def forward(self, inputs: Bags) -> torch.Tensor:
        """All logits, shape (samples, classes)."""
        logits: torch.Tensor = self.output(torch.relu(self.hidden(inputs)))
        return logits

    def loss(self, inputs: Bags, labels: Bags) -> torch.Tensor:
        """``-sum(log p[labels]) / len(labels)`` of each sample; 0 where it has no label.

        While it learns, p is the softmax over what the output layer computes for the sample; in
        eval mode over all classes.
        """
        hidden = torch.relu(self.hidden(inputs))
        if self.training and isinstance(self.output, OutputLinear):
            return self.output.loss(hidden, (labels.starts, labels.ids))
        if torch.is_grad_enabled():
            return _full_loss(self.output(hidden), labels)
        return torch.cat(
            [_full_loss(logits, labels.take(rows)) for rows, logits in self._by_parts(hidden)]
        )

    @torch.no_grad()
    def best(self, inputs: Bags) -> torch.Tensor:
        """The most likely class of each sample, of all: int64 tensor, shape (samples,)."""
        hidden = torch.relu(self.hidden(inputs))
        found = [logits.argmax(1) for _, logits in self._by_parts(hidden)]
        return torch.cat([*found, torch.empty(0, dtype=torch.int64, device=hidden.device)])

    def part(self, rank: int, ranks: int) -> SlideModel:
        """A rank's neurons: a range of the columns of the hidden weight, of the output's rows.

        As they are now, in memory of their own. The hidden layer of a part gives its own neurons'
        outputs; its output layer takes those of all.
        """
        columns, rows = (
            Layout.block(count, ranks).indices(rank)
            for count in (self.hidden.out_features, self.classes)
        )
        some = slice(int(columns[0]), int(columns[-1]) + 1) if len(columns) else slice(0, 0)
        held = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        made = SlideModel.__new__(SlideModel)
        nn.Module.__init__(made)
        made.features, made.classes, made._full = self.features, self.classes, False
        made.hidden = self._hidden(len(columns))
        made.output = self._made_by(
            self.hidden.out_features, self.classes, seed=self._seed, rows=held
        )
        own = {
            f"hidden.{name}": value[..., some] if value.dim() else value
            for name, value in self.hidden.state_dict().items()
        }
        for name, value in self.output.state_dict().items():
            own[f"output.{name}"] = value[_rows_of(name, value, slice(*held))]
        made.load_state_dict(own)
        return made.to(self.hidden.weight.device)

    def joined(self, parts: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """The state of the whole model, of the states of all ranks' parts, in rank order."""
        whole: dict[str, torch.Tensor] = {}
        for name in parts[0]:
            values = [one[name] for one in parts]
            layer, _, short = name.partition(".")
            axis = _axis(short, values[0])
            if axis is None:
                whole[name] = values[0]
            else:
                whole[name] = torch.cat(values, dim=-1 if layer == "hidden" else axis)
        return whole

    def empty(self) -> None:
        """Give the memory of all parameters back; :meth:`load_state_dict` fills them again."""
        for value in [*self.parameters(), *self.buffers()]:
            if value.dim():
                value.data = value.new_empty([0] * value.dim())

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **more: Any) -> Any:
        """As of every module; one that is empty takes any sizes, and one that is full none."""
        for name, value in [*self.named_parameters(), *self.named_buffers()]:
            given = state_dict.get(name)
            if isinstance(given, torch.Tensor) and 0 in (given.numel(), value.numel()):
                value.data = value.new_empty(given.shape)
        return super().load_state_dict(state_dict, *args, **more)

    def _hidden(self, count: int) -> BagLinear:
        """A hidden layer of so many units, with this model's hash functions."""
        if self._units is None:
            return BagLinear(self.features, count)
        return self._units(self.features, count, seed=self._seed)

    def _by_parts(self, hidden: torch.Tensor) -> Any:
        """Rows of a batch, and their logits, so many at a time as memory allows."""
        height = max(1, _AT_ONCE // self.classes)
        for rows in torch.split(torch.arange(len(hidden)), height):
            yield rows, self.output(hidden[rows.to(hidden.device)])


def _full_loss(logits: torch.Tensor, labels: Bags) -> torch.Tensor:
    """Cross-entropy over all classes."""
    counts = labels.counts
    own = torch.zeros(len(logits), device=logits.device)
    own = own.index_add(0, labels.row_of, logits[labels.row_of, labels.ids])
    losses: torch.Tensor = torch.logsumexp(logits, 1) - own / counts.clamp(min=1)
    return torch.where(counts > 0, losses, torch.zeros_like(losses))


def _axis(name: str, value: torch.Tensor) -> int | None:
    """Dimension that goes over the neurons; None where there is none."""
    if not value.dim():
        return None
    return 1 if name == "codes" else 0  # codes: tables x neurons


def _rows_of(name: str, value: torch.Tensor, rows: slice) -> Any:
    axis = _axis(name, value)
    return ... if axis is None else (slice(None),) * axis + (rows,)
