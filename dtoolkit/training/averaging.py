"""The mean of several models, weighted by the samples that each has used.

Parameters are averaged, and so is whatever else a model keeps: running means by samples; running
variances of batch norm with the variance of the means, as of one set of all samples; counters
(integer and boolean buffers) are the largest, never a mean rounded to 0. Models without samples
weigh nothing. Models that are equal give exactly themselves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator

__all__ = [
    "average",
    "average_model",
    "average_over",
    "batch_statistics",
    "kept_buffers",
    "load_average",
    "model_parts",
    "whole_state",
]

_MEAN, _VAR = "running_mean", "running_var"


def average(
    states: Sequence[Mapping[str, torch.Tensor]],
    samples: Sequence[float],
    *,
    statistics: Collection[str] | None = None,
) -> dict[str, torch.Tensor]:
    """Mean of models that are all here.

    Parameters
    ----------
    states : sequence of mappings
        Names to tensors; the same names, shapes and dtypes in each. ``x.running_mean`` and
        ``x.running_var`` are statistics of one layer.
    samples : sequence of float
        What each model weighs: at least 0. Where all are 0, models weigh the same.
    statistics : collection of str, optional
        Names of the running means that are pooled with their variances, as
        :func:`batch_statistics` gives them; by default all of that kind.

    Returns
    -------
    dict
        Of the same names; computed in float64, in the order given, and rounded once.

    Raises
    ------
    ValueError
        The models do not match, there are none, or a weight is negative or not finite.
    """
    weights = _weights(samples)
    if len(states) != len(weights) or not states:
        raise ValueError(f"states: {len(states)} models for {len(weights)} numbers of samples")
    for number, state in enumerate(states):
        _compare(states[0], state, number)
    result: dict[str, torch.Tensor] = {}
    for group in _groups(states[0], statistics):
        flats = [group.gathered(state) for state in states]
        if group.counts:
            total = _largest([flat for flat, weight in zip(flats, weights, strict=True) if weight])
        else:
            total = _combined(flats, weights, group.pairs)
        result |= group.scattered(total, states[0])
    return {name: result[name] for name in states[0]}


def average_over(
    comm: Communicator,
    state: Mapping[str, torch.Tensor],
    samples: float | Sequence[float],
    *,
    statistics: Collection[str] | None = None,
) -> dict[str, torch.Tensor]:
    """Mean of the models of all ranks: what :func:`average` gives, the same bits on every rank.

    Collective. Each dtype travels as one message: the ranks exchange slices, each combines its
    own, and all gather the results, so that 2 (P-1)/P of a model's bytes leave a rank, as in an
    all-reduce.

    Parameters
    ----------
    comm : Communicator
    state : mapping
        This rank's; the same names, shapes and dtypes on all ranks.
    samples : float or sequence of float
        What this rank's model weighs; or what each rank's does, where all know it already, which
        saves a message.
    statistics : collection of str, optional
        As of :func:`average`.

    Returns
    -------
    dict
        New tensors.

    Raises
    ------
    ValueError
        A weight is negative or not finite.
    MessageMismatch
        The ranks' models differ in size.
    """
    if isinstance(samples, Sequence):
        weights = _weights(samples)
    else:
        mine = torch.tensor([float(samples)], dtype=torch.float64)
        weights = _weights(comm.all_gather(mine).flatten().tolist())
    if len(weights) != comm.size:
        raise ValueError(f"samples: {len(weights)} numbers for {comm.size} ranks")
    result: dict[str, torch.Tensor] = {}
    for group in _groups(state, statistics):
        flat = group.gathered(state)
        if group.counts:
            # What weighs nothing says the least that there is.
            said = flat if weights[comm.rank] else torch.full_like(flat, _least(flat.dtype))
            total = comm.all_reduce(said, "max")
        else:
            total = _combined_over(comm, flat, weights, group.pairs)
        result |= group.scattered(total, state)
    return {name: result[name] for name in state}


def average_model(
    comm: Communicator, model: nn.Module, samples: float | Sequence[float]
) -> dict[str, torch.Tensor]:
    """Mean over ranks of what a model learns and keeps; collective.

    Parameters
    ----------
    comm : Communicator
    model : nn.Module
        Left as it is. Frozen parameters are not sent; tied ones once; buffers that are not saved
        with a model are no part of it.
    samples : float or sequence of float
        As of :func:`average_over`.

    Returns
    -------
    dict
        As :func:`load_average` and :func:`whole_state` take it.
    """
    return average_over(comm, model_parts(model), samples, statistics=batch_statistics(model))


def load_average(model: nn.Module, mean: Mapping[str, torch.Tensor]) -> None:
    """Put what :func:`average_model` gave into a model, or a part of that."""
    with torch.no_grad():
        for name, value in model_parts(model).items():
            if name in mean:
                value.copy_(mean[name])


def batch_statistics(model: nn.Module) -> frozenset[str]:
    """Names of a model's running means that are those of batches: of batch norm alone.

    Variances of other layers (instance norm) are not about that mean, and are averaged as they are.
    """
    return frozenset(
        f"{name}.{_MEAN}".lstrip(".")
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm)
    )


def kept_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that are saved with a model, the tensors themselves; shared ones once."""
    saved = set(model.state_dict())
    return {name: value for name, value in model.named_buffers() if name in saved}


def model_parts(model: nn.Module) -> dict[str, torch.Tensor]:
    """What a model learns, and the buffers that are saved with it; tied ones once."""
    learned = {name: value for name, value in model.named_parameters() if value.requires_grad}
    return {name: value.detach() for name, value in (learned | kept_buffers(model)).items()}


def whole_state(model: nn.Module, mean: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """State dict of a model with what :func:`average_model` gave in place; the model stays."""
    by_place = {
        _place(value): mean[name] for name, value in model_parts(model).items() if name in mean
    }
    return {
        name: by_place.get(_place(value), value.detach()).clone()
        for name, value in model.state_dict().items()
    }


# ------------------------------------------------------------------------------------- layout


@dataclass(frozen=True)
class _Group:
    """Tensors of one dtype that travel as one flat tensor: single ones, then layers' statistics.

    Attributes
    ----------
    dtype : torch.dtype
    singles : list of str
    layers : list of (str, str)
        Names of running mean and running variance; their elements lie side by side, so that
        whoever combines a slice has both.
    pairs : int
        Elements of all running means.
    """

    dtype: torch.dtype
    singles: list[str]
    layers: list[tuple[str, str]]
    pairs: int

    @property
    def counts(self) -> bool:
        return not (self.dtype.is_floating_point or self.dtype.is_complex)

    def gathered(self, state: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The flat tensor; complex numbers as pairs of real ones."""
        flats = [_real(state[name].detach()).reshape(-1) for name in self.singles]
        for layer in self.layers:
            columns = [state[name].detach().reshape(-1) for name in layer]
            flats.append(torch.stack(columns, 1).flatten())
        return torch.cat(flats)

    def scattered(
        self, flat: torch.Tensor, like: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """The tensors of a flat one, of the shapes of `like`."""
        width = 2 if self.dtype.is_complex else 1
        sizes = [width * like[name].numel() for name in self.singles]
        sizes += [2 * like[name].numel() for name, _ in self.layers]
        pieces = iter(torch.split(flat, sizes))
        result = {}
        for name in self.singles:
            piece = next(pieces).clone()
            whole = torch.view_as_complex(piece.view(-1, 2)) if self.dtype.is_complex else piece
            result[name] = whole.reshape(like[name].shape)
        for layer in self.layers:
            table = next(pieces).view(-1, 2)
            for column, name in enumerate(layer):
                result[name] = table[:, column].clone().reshape(like[name].shape)
        return result


def _groups(state: Mapping[str, torch.Tensor], statistics: Collection[str] | None) -> list[_Group]:
    """What travels together, in the order of the state."""
    groups: dict[torch.dtype, _Group] = {}
    layers = {}
    for name in state:
        if name.rpartition(".")[2] == _MEAN and (statistics is None or name in statistics):
            other = name.removesuffix(_MEAN) + _VAR
            if other in state and _alike(state[name], state[other]):
                layers[name] = other
    paired = {*layers, *layers.values()}
    for dtype in dict.fromkeys(value.dtype for value in state.values()):
        names = [name for name, value in state.items() if value.dtype == dtype]
        here = [(name, layers[name]) for name in names if name in layers]
        singles = [name for name in names if name not in paired]
        groups[dtype] = _Group(dtype, singles, here, sum(state[name].numel() for name, _ in here))
    return list(groups.values())


def _alike(mean: torch.Tensor, var: torch.Tensor) -> bool:
    return mean.is_floating_point() and mean.dtype == var.dtype and mean.shape == var.shape


def _place(value: torch.Tensor) -> tuple[object, ...]:
    return value.data_ptr(), value.dtype, value.shape, value.stride()


def _compare(first: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor], at: int) -> None:
    if first.keys() != other.keys():
        apart = sorted(first.keys() ^ other.keys())
        raise ValueError(f"states[{at}] and states[0] do not both have {', '.join(apart)}")
    for name, value in first.items():
        if value.shape != other[name].shape or value.dtype != other[name].dtype:
            raise ValueError(
                f"states[{at}][{name!r}] is {tuple(other[name].shape)} of {other[name].dtype}, "
                f"states[0][{name!r}] is {tuple(value.shape)} of {value.dtype}"
            )


# --------------------------------------------------------------------------------- arithmetic


def _combined_over(
    comm: Communicator, flat: torch.Tensor, weights: Sequence[float], pairs: int
) -> torch.Tensor:
    """The mean of all ranks' flat tensors: each rank combines a slice of them."""
    cut = flat.numel() - 2 * pairs
    singles = torch.tensor_split(flat[:cut], comm.size)
    tables = torch.tensor_split(flat[cut:].view(-1, 2), comm.size)
    slices = [torch.cat([a, b.flatten()]) for a, b in zip(singles, tables, strict=True)]
    out = [torch.empty_like(slices[comm.rank]) for _ in slices]
    mine = _combined(comm.all_to_all(slices, out=out), weights, len(tables[comm.rank]))
    done = comm.all_gather_v(mine)
    ends = [len(piece) for piece in singles]
    parts = [piece[:end] for piece, end in zip(done, ends, strict=True)]
    parts += [piece[end:] for piece, end in zip(done, ends, strict=True)]
    return torch.cat(parts)


def _combined(flats: Sequence[torch.Tensor], weights: Sequence[float], pairs: int) -> torch.Tensor:
    """Mean of flat tensors whose last ``2 * pairs`` elements are (mean, variance)."""
    weighing = [
        (flat.double(), weight) for flat, weight in zip(flats, weights, strict=True) if weight
    ]
    cut = flats[0].numel() - 2 * pairs
    single = _mean([(flat[:cut], weight) for flat, weight in weighing])
    tables = [(flat[cut:].view(-1, 2), weight) for flat, weight in weighing]
    mean = _mean([(table[:, 0], weight) for table, weight in tables])
    var = _mean([(table[:, 1] + (table[:, 0] - mean) ** 2, weight) for table, weight in tables])
    table = torch.stack([mean, var.clamp(min=0)], 1)
    return torch.cat([single, table.flatten()]).to(flats[0].dtype)


def _mean(weighed: Sequence[tuple[torch.Tensor, float]]) -> torch.Tensor:
    """Weighted mean, as the first and what the others differ from it: equal ones stay equal."""
    first = weighed[0][0]
    total = torch.zeros_like(first)
    for value, weight in weighed[1:]:
        # Infinities that are equal differ by nothing, not by NaN: masks are made of them.
        total += weight * torch.where(value == first, 0.0, value - first)
    return first + total / sum(weight for _, weight in weighed)


def _largest(flats: Sequence[torch.Tensor]) -> torch.Tensor:
    total = flats[0]
    for flat in flats[1:]:
        total = torch.maximum(total, flat)
    return total


def _least(dtype: torch.dtype) -> int:
    return 0 if dtype == torch.bool else torch.iinfo(dtype).min


def _weights(samples: Sequence[float]) -> list[float]:
    for rank, value in enumerate(samples):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"samples of model {rank}: {value}, wanted a number of at least 0")
    return [float(value) for value in samples] if any(samples) else [1.0] * len(samples)


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
