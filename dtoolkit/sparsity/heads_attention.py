"""PyTorch's attention with heads removed."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

__all__ = ["FewerHeads"]


class FewerHeads(nn.MultiheadAttention):
    """What ``torch.nn.MultiheadAttention`` becomes when heads are removed from it.

    The same object with smaller weights and another class: PyTorch's own forward pass wants heads
    that fill the whole width. It is called in the same way.

    Attributes
    ----------
    num_heads, head_dim : int
        Heads that are left, and their width, which stays.
    kept_heads : tuple of int
        Which they were, of `all_heads`.
    all_heads : int
    """

    own_forward = True
    kept_heads: tuple[int, ...]
    all_heads: int

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As ``torch.nn.MultiheadAttention``.

        Parameters
        ----------
        query, key, value : tensor, shape (batch, length, width) if `batch_first`
            Or (length, batch, width), or without batch.
        key_padding_mask : tensor, shape (batch, length of keys), optional
        need_weights : bool
        attn_mask : tensor, shape (queries, keys) or (batch x heads, queries, keys), optional
            Heads that are left or all that there were.
        average_attn_weights, is_causal : bool
            `is_causal` is a hint alone, as there: it wants the mask too.

        Returns
        -------
        tensor, shape of `query`
        tensor or None
            Weights of attention, averaged over the heads that are left, or head by head.

        Raises
        ------
        ValueError
            A mask is given as a hint alone, or has another shape.
        """
        if is_causal and attn_mask is None:
            raise ValueError("is_causal=True: wanted attn_mask too")
        alone = query.dim() == 2
        first = 0 if self.batch_first or alone else 1
        turned: dict[int, torch.Tensor] = {}
        for tensor in (query, key, value):  # one tensor three times stays one
            if id(tensor) not in turned:
                turned[id(tensor)] = tensor.unsqueeze(0) if alone else tensor.transpose(0, first)
        parts = [turned[id(tensor)] for tensor in (query, key, value)]
        if alone and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        q, k, v = (self._split(part) for part in self._project(*parts))
        mask = self._mask(q, k.shape[2], key_padding_mask, attn_mask)
        if need_weights:
            out, weights = self._weighed(q, k, v, mask)
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            dropped = self.dropout if self.training else 0.0
            out = functional.scaled_dot_product_attention(q, k, v, mask, dropped)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        out = out.squeeze(0) if alone else out.transpose(0, first)
        if not need_weights:
            return out, None
        return out, weights.squeeze(0) if alone else weights

    def extra_repr(self) -> str:
        """Which heads are left."""
        return f"heads {', '.join(map(str, self.kept_heads))} of {self.all_heads}"

    def _project(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> list[torch.Tensor]:
        if self.in_proj_weight is not None:
            if query is key and key is value:
                whole = functional.linear(query, self.in_proj_weight, self.in_proj_bias)
                return [*whole.chunk(3, -1)]
            weights = [*self.in_proj_weight.chunk(3)]
        else:
            weights = [self.get_parameter(f"{letter}_proj_weight") for letter in "qkv"]
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        three = zip((query, key, value), weights, biases, strict=True)
        return [functional.linear(part, weight, bias) for part, weight, bias in three]

    def _split(self, projected: torch.Tensor) -> torch.Tensor:
        """Batch x heads x length x head width."""
        return projected.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _weighed(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scores = query @ key.transpose(2, 3) * self.head_dim**-0.5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = functional.dropout(weights, self.dropout, self.training)
        return weights @ value, weights

    def _mask(
        self,
        query: torch.Tensor,
        keys: int,
        padding: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Both masks as one that is added: batch x heads x queries x keys, or broadcast to it."""
        batch, heads, queries = query.shape[:3]
        both = None
        if mask is not None:
            both = _added(mask, query.dtype)
            if mask.dim() == 3 and mask.shape[0] == batch * self.all_heads:
                both = both.view(batch, self.all_heads, queries, keys)[:, list(self.kept_heads)]
            elif mask.dim() == 3 and mask.shape[0] == batch * heads:
                both = both.view(batch, heads, queries, keys)
            elif mask.shape != (queries, keys):
                raise ValueError(
                    f"attn_mask of shape {tuple(mask.shape)}: wanted {(queries, keys)} or "
                    f"{(batch * heads, queries, keys)}"
                )
        if padding is not None:
            added = _added(padding, query.dtype).view(batch, 1, 1, keys)
            both = added if both is None else both + added
        return both


def _added(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask that is added to scores: True in a bool mask means not to look there."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
