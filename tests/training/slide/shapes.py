"""What SLIDE is said to show (Chen et al., MLSys 2020), on a planted set, over three seeds.

``python -m tests.training.slide.shapes [--quick]`` trains one network by its output layers, the
same samples in the same order: the full softmax, SLIDE, as many random neurons a sample as SLIDE
has active ones, and a sampled softmax of a fifth of the classes; prints precision@1 on samples that
it did not learn from, over the steps; and exits 1 where a must is missed. The set has 4,000
classes, all about as common as each other, that look alike in groups of about 63: a random
hundredth of the classes rarely has one that a sample is mistaken for, what its hash finds has many.
Where few classes are most of all samples, or after few steps, chance does as well: then it is their
frequencies that are learned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import pandas as pd
import torch

from dtoolkit.data import extreme
from dtoolkit.training.slide import (
    FullLinear,
    OutputLinear,
    RandomLinear,
    RowSparseAdam,
    SampledLinear,
    SlideLinear,
)
from dtoolkit.training.slide.model import SlideModel
from dtoolkit.training.sparse_examples import Bags, SparseExamples
from tests.benchmarks.common import Check, options, verdict

BATCH, RATE = 128, 0.003
SLIDE = {"family": "dwta", "hashes": 4, "tables": 40, "refresh": (5, 0.02)}
BEHIND, CLEARLY = 2.0, 5.0  # points of precision: behind the full softmax, above chance


@dataclass(frozen=True)
class Setting:
    """A planted set, a network, and for how long it learns."""

    classes: int = 4000
    features: int = 4000
    samples: int = 60_000
    hidden: int = 128
    steps: int = 800
    every: int = 200


QUICK = Setting(hidden=64, steps=900, every=300)


def learned(
    output: Callable[..., OutputLinear], setting: Setting, seed: int
) -> tuple[list[float], float]:
    """Precision@1 after every so many steps, and active neurons of a sample."""
    train, test = samples(setting, seed)
    torch.manual_seed(seed)
    model = SlideModel(setting.features, setting.hidden, setting.classes, output)
    optimizer = RowSparseAdam(model.parameters(), lr=RATE)
    curve = []
    for step, (inputs, labels) in enumerate(batches(train, setting.steps, seed), 1):
        model.train()
        model.loss(inputs, labels).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % setting.every == 0:
            model.eval()
            curve.append(precision_of(model, test))
    return curve, model.output.retrieval.mean


@cache
def samples(setting: Setting, seed: int) -> tuple[SparseExamples, SparseExamples]:
    """Planted samples to learn from and to test on."""
    data = extreme(
        setting.classes, setting.features, setting.samples,
        seed=seed, test=0.05, exponent=0.3, noise=0.1,
    )  # fmt: skip
    train, test = (
        SparseExamples(data.matrix[ids], data.labels[ids]) for ids in (data.train, data.test)
    )
    return train, test


def batches(examples: SparseExamples, steps: int, seed: int) -> Iterator[tuple[Bags, Bags]]:
    """The same samples in the same order, whatever learns from them."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield examples.take(torch.randint(len(examples), (BATCH,), generator=generator))


def precision_of(model: SlideModel, test: SparseExamples) -> float:
    """Share of the test samples whose most likely class, of all, is a label."""
    inputs, labels = test.take(torch.arange(len(test)))
    best = model.best(inputs)
    right = labels.ids == best[labels.row_of]
    return float(torch.zeros(len(test)).index_add(0, labels.row_of, right.float()).mean())


def compare(setting: Setting, seeds: range, *, whole: bool = True) -> pd.DataFrame:
    """One row a layer, seed and step: precision@1, and active neurons of a sample."""
    rows = []
    for seed in seeds:
        curves = {"SLIDE": learned(partial(SlideLinear, **SLIDE), setting, seed)}
        count = round(curves["SLIDE"][1])
        curves["random"] = learned(partial(RandomLinear, count=count), setting, seed)
        if whole:
            curves["full softmax"] = learned(FullLinear, setting, seed)
            fifth = setting.classes // 5
            curves["sampled, 20%"] = learned(partial(SampledLinear, count=fifth), setting, seed)
        for name, (curve, active) in curves.items():
            for place, value in enumerate(curve, 1):
                rows.append((name, seed, place * setting.every, 100 * value, active))
    return pd.DataFrame(rows, columns=["layer", "seed", "step", "precision", "active"])


def main() -> int:
    """Write the table: means over the seeds; and judge each seed."""
    quick = options(__doc__).quick
    setting, seeds = (QUICK, range(1)) if quick else (Setting(), range(3))
    found = compare(setting, seeds)
    means = found.pivot_table(index="layer", columns="step", values="precision")
    means.insert(0, "active", found.groupby("layer")["active"].mean().round(1))
    means.loc["full softmax", "active"] = setting.classes
    print(f"precision@1 (%), {len(seeds)} seed(s), {setting}")
    print(means.round(1).to_string())
    last = found[found["step"] == setting.steps].pivot(
        index="seed", columns="layer", values="precision"
    )
    behind = float((last["full softmax"] - last["SLIDE"]).max())
    above = float((last["SLIDE"] - last["random"]).min())
    return verdict(
        [
            Check("points that SLIDE lacks against the full softmax, worst seed", behind, BEHIND),
            Check("random over SLIDE, points, best seed of random", -above, -CLEARLY),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
