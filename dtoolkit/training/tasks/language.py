"""Two small models that read bytes from left to right and score the next one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["BYTES", "GruLanguageModel", "Transformer"]

BYTES = 256


class Transformer(nn.Module):
    """A causal transformer with learned positions (GPT-2's layout).

    Parameters
    ----------
    width, layers, heads : int
        Features, blocks, attention heads; ``heads`` divides ``width``.
    context : int
        Most bytes that it can read.
    tied : bool
        One matrix for reading and for predicting.
    dropout : float
        Share of features left out while learning, after each half of a block.
    """

    def __init__(
        self, width: int, layers: int, heads: int, context: int, *, tied: bool, dropout: float
    ) -> None:
        super().__init__()
        self.read = _reader(width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.ModuleList(_Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.predict = _predictor(width, self.read, tied)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map uint8 bytes of shape (n, length) to scores of shape (n, length, 256)."""
        x = self.read(inputs.long()) + self.positions[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.predict(self.norm(x))

    def sequence(self) -> list[nn.Module]:
        """Modules that are this model, one after the other: what a pipeline cuts into stages."""
        return [_Start(self.read, self.positions), *self.blocks, self.norm, self.predict]


class GruLanguageModel(nn.Module):
    """A recurrent network of gated units (GRU).

    Parameters
    ----------
    width, layers : int
        Features, layers.
    tied : bool
        One matrix for reading and for predicting.
    dropout : float
        Share of features left out while learning, before the scores.
    """

    def __init__(self, width: int, layers: int, *, tied: bool, dropout: float) -> None:
        super().__init__()
        self.read = _reader(width)
        self.recur = nn.GRU(width, width, layers, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.predict = _predictor(width, self.read, tied)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map uint8 bytes of shape (n, length) to scores of shape (n, length, 256)."""
        return self.predict(self.drop(self.recur(self.read(inputs.long()))[0]))

    def sequence(self) -> list[nn.Module]:
        """Modules that are this model, one after the other: what a pipeline cuts into stages."""
        return [_Start(self.read), _Outputs(self.recur), self.drop, self.predict]


class _Start(nn.Module):
    """Bytes to features, with where they stand if there are positions."""

    def __init__(self, read: nn.Embedding, positions: nn.Parameter | None = None) -> None:
        super().__init__()
        self.read, self.positions = read, positions

    def forward(self, inputs: Tensor) -> Tensor:
        x: Tensor = self.read(inputs.long())
        return x if self.positions is None else x + self.positions[: inputs.shape[1]]


class _Outputs(nn.Module):
    """What a recurrent network gives for each byte, without its last state."""

    def __init__(self, recur: nn.GRU) -> None:
        super().__init__()
        self.recur = recur

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.recur(x)[0]
        return outputs


class _Block(nn.Module):
    """Attention to what came before, then a small network; both added to what went in."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        split = self.attend(self.norm1(x)).view(n, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.drop(self.mix(seen.transpose(1, 2).reshape(n, length, width)))
        return x + self.drop(self.think(self.norm2(x)))


def _reader(width: int) -> nn.Embedding:
    read = nn.Embedding(BYTES, width)
    nn.init.normal_(read.weight, std=width**-0.5)  # so that tied scores begin with a spread of 1
    return read


def _predictor(width: int, read: nn.Embedding, tied: bool) -> nn.Linear:
    predict = nn.Linear(width, BYTES)
    if tied:
        predict.weight = read.weight
    return predict
