"""What random pruning is said to show (Liu et al., ICLR 2022), on the digits, over five seeds.

``python -m tests.sparsity.shapes`` writes the table: test accuracy of a network of two hidden
layers by method, distribution, density and width. The tests hold its directions.
"""

from __future__ import annotations

import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from dtoolkit.sparsity import Cosine, Cubic, Schedule, Sparsifier

SEEDS, STEPS = range(5), 300
SCHEDULES: dict[str, Schedule] = {
    "magnitude": Cubic(every=10, stop=200),
    "set": Cosine(every=20, stop=220),
    "rigl": Cosine(every=20, stop=220),
}
CASES = [
    *(("static", name, 0.02, 128) for name in ("uniform", "erk")),
    *((method, "erk", 0.02, 128) for method in ("snip", "set", "rigl", "magnitude")),
    *(("static", "uniform", density, w) for w in (32, 128, 512) for density in (0.1, 1.0)),
]


def accuracy(method: str, distribution: str, density: float, width: int, seed: int) -> float:
    """Share of 597 test images that are recognised after 300 steps on 1,200 others."""
    images, labels = load_digits(return_X_y=True)
    inputs, wanted = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(seed)
    order = torch.randperm(len(inputs))
    train, test = order[:1200], order[1200:]
    model = nn.Sequential(
        *(nn.Linear(64, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    sparsifier = Sparsifier(
        model,
        optimizer,
        method=method,
        density=density,
        distribution=distribution,
        schedule=SCHEDULES.get(method),
        seed=seed,
    )
    for _ in range(STEPS):
        batch = train[torch.randint(len(train), (64,))]
        optimizer.zero_grad()
        cross_entropy(model(inputs[batch]), wanted[batch]).backward()
        optimizer.step()
        sparsifier.step()
    return (model(inputs[test]).argmax(1) == wanted[test]).double().mean().item()


def table(cases: list[tuple[str, str, float, int]]) -> pd.DataFrame:
    """Mean, lowest and highest accuracy over the seeds, one row a case."""
    rows = []
    for case in cases:
        found = pd.Series([accuracy(*case, seed) for seed in SEEDS])
        names = dict(zip(("method", "distribution", "density", "width"), case, strict=True))
        rows.append({**names, "mean": found.mean(), "lowest": found.min(), "highest": found.max()})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(table(CASES).round(3).to_string(index=False))
