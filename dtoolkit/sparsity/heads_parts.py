"""Where the heads of an attention module are: its projections and the number of its heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["Attention", "HeadParts", "find_attention"]


@dataclass(frozen=True)
class HeadParts:
    """Names of what an attention module is made of.

    Attributes
    ----------
    query, key, value : str
        Linear layers; one name three times where one layer makes all, query first and value last.
    output : str
        Linear layer that reads the heads, one after the other.
    heads : str
        Attribute with their number, which the forward pass looks at; their width must not follow
        from it.
    """

    query: str
    key: str
    value: str
    output: str
    heads: str


_SEPARATE = (
    *(("q_proj", "k_proj", "v_proj", output) for output in ("out_proj", "o_proj", "proj")),
    *(("query", "key", "value", output) for output in ("output", "out", "proj", "out_proj")),
    *((*"qkv", output) for output in ("o", "out", "proj", "out_proj")),
    *(("wq", "wk", "wv", "wo"), ("w_q", "w_k", "w_v", "w_o"), ("to_q", "to_k", "to_v", "to_out")),
)
_FUSED = tuple(
    (first, first, first, output)
    for first in ("qkv", "qkv_proj", "in_proj", "c_attn", "to_qkv")
    for output in ("proj", "out_proj", "o_proj", "c_proj", "out", "to_out")
)
_HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads")


@dataclass(frozen=True, eq=False)
class Attention:
    """An attention module and its weights.

    Attributes
    ----------
    name : str
    module : torch.nn.Module
    parts : HeadParts or None
        None for ``torch.nn.MultiheadAttention``.
    """

    name: str
    module: nn.Module
    parts: HeadParts | None

    @property
    def heads(self) -> int:
        """Number of heads now."""
        attribute = "num_heads" if self.parts is None else self.parts.heads
        return int(getattr(self.module, attribute))

    @property
    def inputs(self) -> list[tuple[str, int, int]]:
        """Query, key and value: name of the tensor, and which of how many parts of it."""
        if self.parts is not None:
            names = (self.parts.query, self.parts.key, self.parts.value)
            fused = len(set(names)) == 1
            return [
                (f"{n}.weight", place if fused else 0, 3 if fused else 1)
                for place, n in enumerate(names)
            ]
        if self.module._parameters.get("in_proj_weight") is not None:
            return [("in_proj_weight", place, 3) for place in range(3)]
        return [(f"{letter}_proj_weight", 0, 1) for letter in "qkv"]

    @property
    def biases(self) -> list[tuple[str, int, int] | None]:
        """Biases of query, key and value in the same way; None where there is none."""
        if self.parts is None:
            there = self.module._parameters.get("in_proj_bias") is not None
            return [("in_proj_bias", place, 3) if there else None for place in range(3)]
        found: list[tuple[str, int, int] | None] = []
        for name, place, count in self.inputs:
            layer = self.module.get_submodule(name.removesuffix(".weight"))
            there = layer._parameters.get("bias") is not None
            found.append((name.removesuffix("weight") + "bias", place, count) if there else None)
        return found

    @property
    def output(self) -> nn.Linear:
        """The layer that reads the heads."""
        layer = self.module.get_submodule(self.output_name)
        assert isinstance(layer, nn.Linear)
        return layer

    @property
    def output_name(self) -> str:
        """Its name in the module."""
        return "out_proj" if self.parts is None else self.parts.output

    def part(self, where: tuple[str, int, int]) -> torch.Tensor:
        """One of the parts of a tensor, along its rows: a view."""
        name, place, count = where
        return self.module.get_parameter(name).chunk(count)[place]

    def check(self) -> None:
        """Refuse what has no heads to remove; ValueError says why."""
        rows = [self.part(where).shape[0] for where in self.inputs]
        heads = self.heads
        said = f"attention {self.name!r}"
        if len(set(rows)) > 1:
            raise ValueError(
                f"{said}: query, key and value have {rows} rows: heads that share keys and values "
                "cannot be removed one by one"
            )
        if heads < 1 or rows[0] % heads or self.output.weight.shape[1] != rows[0]:
            raise ValueError(
                f"{said}: {heads} heads, {rows[0]} rows and an output that reads "
                f"{self.output.weight.shape[1]}: wanted heads of one width, all read by the output"
            )
        if isinstance(self.module, nn.MultiheadAttention) and (
            self.module.bias_k is not None or self.module.add_zero_attn
        ):
            raise ValueError(f"{said}: wanted one without add_bias_kv and add_zero_attn")


def find_attention(
    model: nn.Module, parts: Mapping[type[nn.Module], HeadParts] | None = None
) -> list[Attention]:
    """Find the attention modules of a model.

    Parameters
    ----------
    model : torch.nn.Module
    parts : mapping of type to HeadParts, optional
        For classes of your own. Those whose layers and number of heads have usual names are found
        without it (``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``, ``num_heads`` ...), and
        ``torch.nn.MultiheadAttention`` always.

    Returns
    -------
    list of Attention
        In the order of the model.

    Raises
    ------
    ValueError
        A module lacks a part that it is said to have, or its heads cannot be removed.
    """
    found = []
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            attention = Attention(name, module, None)
        else:
            named = _named(module, parts or {})
            if named is None:
                continue
            attention = Attention(name, module, named)
        attention.check()
        found.append(attention)
    return found


def _named(module: nn.Module, parts: Mapping[type[nn.Module], HeadParts]) -> HeadParts | None:
    """Parts of a module, by its class or by usual names."""
    if type(module) in parts:
        given = parts[type(module)]
        layers = (given.query, given.key, given.value, given.output)
        missing = [n for n in layers if not isinstance(getattr(module, n, None), nn.Linear)]
        said = f"parts: {type(module).__name__}"
        if missing:
            raise ValueError(f"{said} has no linear layer {', '.join(missing)}")
        if not isinstance(getattr(module, given.heads, None), int):
            raise ValueError(f"{said} has no number of heads {given.heads!r}")
        return given
    heads = next((n for n in _HEADS if isinstance(getattr(module, n, None), int)), None)
    if heads is None:
        return None
    for names in (*_SEPARATE, *_FUSED):
        if all(isinstance(getattr(module, n, None), nn.Linear) for n in names):
            query, key, value, output = names
            return HeadParts(query, key, value, output, heads)
    return None
