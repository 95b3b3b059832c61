"""Models of tokens as a newcomer would bring them, in plain torch, with widths for tests."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Written by hand: one layer makes queries, keys and values, `heads` of them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        seen = scores.softmax(dim=-1) @ v
        return self.out(seen.transpose(1, 2).reshape(batch, length, -1))


class FixedAttention(nn.Module):
    """The same with all sizes written down, one layer for all three, and torch's kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads, self.size = width, heads, width // heads
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.all(x).chunk(3, dim=-1)
        q, k, v = (y.view(batch, length, self.heads, self.size).transpose(1, 2) for y in (q, k, v))
        seen = functional.scaled_dot_product_attention(q, k, v)
        return self.out(seen.transpose(1, 2).contiguous().view(batch, length, self.width))


class EncoderLayer(nn.Module):
    """Attention and two linear layers, each after a layer norm and around a shortcut."""

    def __init__(self, width: int, heads: int, attention: Any) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """A transformer encoder over tokens."""

    def __init__(self, attention: Any = Attention, width: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(30, width)
        self.places = nn.Parameter(torch.randn(1, 12, width) / 4)
        self.layers = nn.ModuleList(EncoderLayer(width, 4, attention) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places[:, : tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class TorchEncoder(nn.Module):
    """torch's own encoder."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tokens = nn.Embedding(30, width)
        layer = nn.TransformerEncoderLayer(width, 4, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.tokens(tokens)).mean(dim=1))


class TiedText(nn.Module):
    """Embedding and output layer share one tensor; no layer norm, so that the width may shrink."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, width)
        self.up, self.down = nn.Linear(width, 24), nn.Linear(24, width)
        self.output = nn.Linear(width, 20, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        return self.output(x + self.down(torch.tanh(self.up(x))))
