"""The values of a masked parameter that are alive: what of its gradient travels."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["LiveValues"]


class LiveValues:
    """Where the live values of a tensor are.

    Parameters
    ----------
    mask : bool tensor
        True where a value is alive; of the tensor's shape.

    Examples
    --------
    >>> live = LiveValues(torch.tensor([[True, False], [False, True]]))
    >>> live.take(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), out=torch.empty(2))
    tensor([1., 4.])
    """

    def __init__(self, mask: torch.Tensor) -> None:
        self.shape = mask.shape
        self._index = mask.reshape(-1).nonzero().view(-1)

    @classmethod
    def of(cls, mask: torch.Tensor | None, parameter: nn.Parameter) -> LiveValues | None:
        """Those of a parameter; None where all its values are, or nothing masks it.

        Raises
        ------
        ValueError
            Mask and parameter differ in shape.
        """
        if mask is None or bool(mask.all()):
            return None
        if mask.shape != parameter.shape:
            raise ValueError(
                f"masks: one of shape {tuple(mask.shape)} for a parameter of shape "
                f"{tuple(parameter.shape)}"
            )
        return cls(mask)

    def __len__(self) -> int:
        return len(self._index)

    def take(self, tensor: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        """Write the live values of a tensor end to end, in the order of its elements."""
        return torch.index_select(tensor.detach().reshape(-1), 0, self._index, out=out)

    def spread(self, values: torch.Tensor, *, over: torch.Tensor | None = None) -> torch.Tensor:
        """A dense tensor of live values, 0 elsewhere.

        Parameters
        ----------
        values : tensor, shape (live values,)
        over : tensor, optional
            One of the right shape that may be written over, and is then given back.
        """
        if over is None or not over.is_contiguous():
            over = values.new_empty(self.shape)
        over.zero_().view(-1).index_copy_(0, self._index, values)
        return over
