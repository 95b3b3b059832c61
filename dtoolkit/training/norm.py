"""Batch norm over ranks.

Where ranks step in lock, a batch is one batch however many ranks share it: its statistics are those
of all its samples. Each rank tells count, mean and sum of squared deviations of its part, which are
combined in rank order (Chan, Golub and LeVeque 1983), so that a rank without samples does no harm.

Where each rank or shard has statistics of its own, a share may be one sample, or have one value a
channel: that has no variance. For such a forward a layer uses its running statistics, as evaluation
does, and leaves them as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["Ranks", "has_batch_norm", "over_ranks", "share_by_share", "spans_ranks"]


def has_batch_norm(model: nn.Module) -> bool:
    """Whether a model has batch norm, of any number of dimensions."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def spans_ranks(module: nn.Module) -> bool:
    """Whether a module is batch norm over ranks, as :func:`over_ranks` makes it."""
    return isinstance(module, _OverRanks)


def over_ranks(model: nn.Module, ranks: Ranks) -> nn.Module:
    """Make a model's batch norm use the statistics of all ranks while it trains; in place.

    Modules, parameters and hooks stay the objects they are, names in the state dict stay, and so
    does what evaluation gives. Gradients are those of the sum of all ranks' losses: equal to one
    process with the joint batch, to rounding.

    Parameters
    ----------
    model : nn.Module
    ranks : Ranks
        With a communicator that nothing else uses: forward and backward exchange sums over it,
        once each a layer, in the order of the layers. Every rank must run the model.

    Returns
    -------
    nn.Module
        The same model.

    Raises
    ------
    ValueError
        A subclass of batch norm has a forward of its own, so that nobody knows what it does with
        the statistics; the model is as it was.
    """
    layers = _layers(model)
    for name, module in layers:
        kind = _plain(module)
        if kind.forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
            raise ValueError(
                f"{name or 'the model'} is a {kind.__name__}, which has a forward of its own: its "
                "statistics cannot be taken over all ranks; choose batch_norm='local'"
            )
    for _, module in layers:
        module.__dict__["ranks"] = ranks  # nothing that a state dict should know of
        _become(module, _OverRanks)
    return model


def share_by_share(model: nn.Module) -> nn.Module:
    """Make a model's batch norm bear shares with one value a channel while it trains; in place.

    For these, layers use their running statistics and do not update them. Else nothing changes.

    Parameters
    ----------
    model : nn.Module

    Returns
    -------
    nn.Module
        The same model. A layer without running statistics raises a ValueError for such a share.
    """
    for _, module in _layers(model):
        _become(module, _ShareByShare)
    return model


class Ranks:
    """What a model's batch norm shares: the communicator, and whether this rank's batch counts.

    Attributes
    ----------
    comm : Communicator
    void : bool
        The batch stands for none: its samples have no part in the statistics, and it has no
        gradient. So a rank without samples can run any model, also one that takes no empty batch.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.void = False

    def __deepcopy__(self, memo: object) -> Ranks:
        return self

    def gather(self, mine: torch.Tensor) -> torch.Tensor:
        """What every rank has, shape (ranks, ...), in float64."""
        with self.comm.phase("batch-norm"):
            return self.comm.all_gather(mine.double())


class _OverRanks(_BatchNorm):
    """The forward of batch norm over ranks; mixed into whatever kind a module is."""

    ranks: Ranks

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        weight = self.weight
        if weight is None:
            weight = torch.ones(self.num_features, dtype=input.dtype, device=input.device)
        bias = torch.zeros_like(weight) if self.bias is None else self.bias
        normal, count, mean, variance = _Normal.apply(input, weight, bias, self.eps, self.ranks)
        if count > 1:
            self._remember(mean, variance * (count / (count - 1)))
        return normal

    @torch.no_grad()
    def _remember(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None:
            return
        assert self.num_batches_tracked is not None
        assert self.running_var is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:  # the plain mean over all batches so far
            share = 1.0 / float(self.num_batches_tracked)
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            running.mul_(1 - share).add_(new.to(running.dtype), alpha=share)


class _ShareByShare(_BatchNorm):
    """The forward of batch norm by share; mixed into whatever kind a module is."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        one = input.dim() > 1 and 0 < input.numel() == input.shape[1]
        if not (self.training and one):
            return super().forward(input)
        if self.running_mean is None or self.running_var is None:
            raise ValueError(
                "batch norm: one value a channel, in a share of one sample, has no variance, and "
                "the layer has no running statistics to use instead (track_running_stats=False); "
                "wanted larger batches, fewer workers or shards, or batch_norm='sync'"
            )
        self.training = False
        try:
            return super().forward(input)
        finally:
            self.training = True


class _Normal(torch.autograd.Function):
    """Normalise with the mean and variance of all ranks' values."""

    @staticmethod
    def forward(
        ctx: Any,
        values: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        eps: float,
        ranks: Ranks,
    ) -> tuple[torch.Tensor, int, torch.Tensor, torch.Tensor]:
        wide = _wide(values)
        count, mean, variance = _joint(wide, ranks)
        if count == 1:
            raise ValueError(
                "batch norm: one value a channel, on all ranks together, has no variance; wanted "
                "larger batches"
            )
        scale, shift = weight.to(wide.dtype), bias.to(wide.dtype)
        mean, variance = mean.to(wide.dtype), variance.to(wide.dtype)
        ctx.save_for_backward(wide, scale, mean, variance)
        ctx.eps, ctx.ranks, ctx.count, ctx.void = eps, ranks, count, ranks.void
        normal = nn.functional.batch_norm(wide, mean, variance, scale, shift, False, 0.0, eps)
        ctx.mark_non_differentiable(mean, variance)
        return normal.to(values.dtype), count, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        values, scale, mean, variance = ctx.saved_tensors
        back = torch.ops.aten.native_batch_norm_backward
        given = gradient.to(values.dtype)
        # As if mean and variance were constants; what they owe to the values follows.
        into, scales, shifts = back(
            given, values, scale, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        if ctx.needs_input_grad[0]:
            mine = torch.stack([shifts, scales])
            shift, tilt = ctx.ranks.gather(mine.zero_() if ctx.void else mine).sum(0) / ctx.count
            inverse = (variance.double() + ctx.eps).rsqrt()
            slope = (-scale * inverse**2 * tilt).to(values.dtype)
            level = (-scale * inverse * shift).to(values.dtype)
            shape = [1, -1] + [1] * (values.dim() - 2)
            into = into + (values - mean.view(shape)) * slope.view(shape) + level.view(shape)
        if ctx.void:
            into, scales, shifts = (torch.zeros_like(one) for one in (into, scales, shifts))
        return into.to(gradient.dtype), scales, shifts, None, None


def _joint(values: torch.Tensor, ranks: Ranks) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Values a channel on all ranks, their mean and their (biased) variance, in float64."""
    channels = values.shape[1]
    count = 0 if ranks.void or not channels else values.numel() // channels
    mine = torch.zeros(3, channels, dtype=torch.float64, device=values.device)
    if count:
        over = [dim for dim in range(values.dim()) if dim != 1]
        variance, mean = torch.var_mean(values, over, correction=0)
        mine[0], mine[1], mine[2] = count, mean, variance.double() * count
    counts, means, squares = ranks.gather(mine).unbind(1)
    total = int(counts[:, 0].sum()) if channels else 0
    mean = (counts * means).sum(0) / max(total, 1)
    variance = (squares + counts * (means - mean) ** 2).sum(0) / max(total, 1)
    return total, mean, variance


def _wide(values: torch.Tensor) -> torch.Tensor:
    half = values.dtype in (torch.float16, torch.bfloat16)
    return values.detach().float() if half else values.detach()


def _layers(model: nn.Module) -> list[tuple[str, _BatchNorm]]:
    return [(name, one) for name, one in model.named_modules() if isinstance(one, _BatchNorm)]


_KINDS: dict[tuple[type, type], type] = {}
_PLAIN: dict[type, type] = {}  # what a kind was made of


def _plain(module: _BatchNorm) -> type[_BatchNorm]:
    return _PLAIN.get(type(module), type(module))


def _become(module: _BatchNorm, way: type[_BatchNorm]) -> None:
    """Mix a way to do the forward into a module's class, in place of what was mixed in before."""
    kind = _plain(module)
    if (way, kind) not in _KINDS:
        members = {"_check_input_dim": kind._check_input_dim, "__doc__": kind.__doc__}
        synced = way is _OverRanks and issubclass(kind, nn.SyncBatchNorm)
        base = _BatchNorm if synced else kind
        made = type(f"{kind.__name__}{way.__name__.lstrip('_')}", (way, base), members)
        _KINDS[way, kind], _PLAIN[made] = made, kind
    object.__setattr__(module, "__class__", _KINDS[way, kind])
