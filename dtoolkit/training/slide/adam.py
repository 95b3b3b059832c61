"""Adam that touches the rows that were active, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from dtoolkit.training.slide.gradient import RowGradient

__all__ = ["RowSparseAdam"]


class RowSparseAdam(torch.optim.Optimizer):
    """Adam in which rows without a gradient keep their weights and their moments.

    For parameters of :class:`SlideLinear` it takes the gradient in factors, and computes gradient,
    moments and weights of a row at once, in parallel over the rows. Sparse gradients
    (``nn.EmbeddingBag(sparse=True)``) are taken by their rows too; parameters with a dense
    ``.grad`` make an ordinary step of Adam. Bias correction counts the steps of the parameter, as
    in ``torch.optim.SparseAdam``; where all rows are active, it is ``torch.optim.Adam``.

    ``step`` consumes the gradients in factors, ``zero_grad`` forgets them.

    Parameters
    ----------
    params : iterable of parameters or groups
    lr : float
    betas : two floats
    eps : float
    """

    row_gradients = True  # which strategies that send ``.grad`` alone would leave out

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        if not lr >= 0:
            raise ValueError(f"lr={lr}: wanted 0 or more")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas={betas}: wanted 0 or more and less than 1")
        if not eps >= 0:
            raise ValueError(f"eps={eps}: wanted 0 or more")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        consumed: dict[int, RowGradient] = {}
        for group in self.param_groups:
            for value in group["params"]:
                factors: RowGradient | None = getattr(value, "row_gradient", None)
                if factors is not None:
                    consumed[id(factors)] = factors
                    value.row_gradient = None
                    self._by_rows(value, factors, group)
                elif value.grad is not None:
                    self._by_grad(value, value.grad, group)
        for factors in consumed.values():
            factors.applied()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, those in factors too."""
        super().zero_grad(set_to_none)
        for group in self.param_groups:
            for value in group["params"]:
                if getattr(value, "row_gradient", None) is not None:
                    value.row_gradient = None

    def _by_rows(self, value: torch.Tensor, factors: RowGradient, group: dict[str, Any]) -> None:
        """Update the rows that are active: of a weight (two dimensions) or a bias (one)."""
        if value.device.type != "cpu":
            self._by_grad(value, factors.sparse()[value.dim() == 1], group)
            return
        from dtoolkit.sparsity.spreading import spread
        from dtoolkit.training.slide import adam_kernels

        first, second, (rate, one, two, root, eps) = self._state(value, group)
        by_row, ones = factors.active.by_row, value.dim() == 1
        shape = (len(value), 1 if ones else value.shape[1])
        inputs = factors.hidden.new_ones(len(factors.hidden), 1) if ones else factors.hidden
        constants = np.array([rate, one, 1 - one, two, 1 - two, root, eps], np.float32)
        spread(
            adam_kernels.by_factors,
            len(by_row.parts),
            *by_row.arrays,
            *(factors.deltas.numpy(), inputs.contiguous().numpy()),
            *(x.detach().view(shape).numpy() for x in (value, first, second)),
            tuple(constants),
        )

    def _by_grad(self, value: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        first, second, (rate, one, two, root, eps) = self._state(value, group)
        if grad.is_sparse:
            grad = grad.coalesce()
            rows, grad = grad.indices()[0], grad.values()
            m, v, own = (x[rows] for x in (first, second, value))
        else:
            rows, m, v, own = None, first, second, value
        m.lerp_(grad, 1 - one)
        v.mul_(two).addcmul_(grad, grad, value=1 - two)
        own.addcdiv_(m, (v.sqrt() * root).add_(eps), value=-rate)
        if rows is not None:
            for whole, part in ((first, m), (second, v), (value, own)):
                whole[rows] = part

    def _state(
        self, value: torch.Tensor, group: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[float, float, float, float, float]]:
        """Moments of a parameter, and what its step needs; counts the step."""
        state = self.state[value]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(value), torch.zeros_like(value)
        state["step"] += 1
        (one, two), steps = group["betas"], float(state["step"])
        rate = group["lr"] / (1 - one**steps)
        constants = (rate, one, two, (1 - two**steps) ** -0.5, group["eps"])
        return state["exp_avg"], state["exp_avg_sq"], constants
