"""PruneTrain from beginning to end, beside dense training of the same network.

``python -m tests.benchmarks.prunetrain [--quick]`` trains a small residual network on the digits of
scikit-learn, enlarged to 16 x 16, twice from the same weights over the same batches: dense, and
with group lasso and a cut every few epochs. Epochs of both take turns, so that whatever else the
machine does meets both. Seconds are those of all that training does: penalty, tracing, trial and
cut too. One round a seed. Exits 1 if the median of the
times' ratios is above 0.7, or if the accuracy on the test images is lower by more than 2 points in
the median.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from dtoolkit.sparsity import PruneTrain
from dtoolkit.training.tasks import digits
from tests.benchmarks.common import Check, machine, options, table, verdict

EPOCHS, EVERY, BATCH, RATE, RATIO, THRESHOLD, MULTIPLE = 20, 2, 32, 0.05, 0.8, 1e-3, 8


class Block(nn.Module):
    """Batch norm, and two 3 x 3 convolutions, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv1(functional.relu(self.norm(x)))
        return self.shortcut(x) + self.conv2(functional.relu(inner))


def network(width: int = 48) -> nn.Module:
    """Three stages of two blocks."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, 1, 1)]
    inputs = width
    for stage in range(3):
        outputs = width << stage
        layers += [Block(inputs, outputs, 1 + (stage > 0)), Block(outputs, outputs, 1)]
        inputs = outputs
    last = [nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *last, nn.Linear(inputs, 10))


@dataclass
class Training:
    """One of the two trainings, and what it took."""

    model: nn.Module
    prune: bool
    images: Tensor
    seconds: list[float] = field(default_factory=list)
    cutting: float = 0.0

    def __post_init__(self) -> None:
        began = time.perf_counter()
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4
        )
        self.pruner = None
        if self.prune:
            self.pruner = PruneTrain(
                self.model,
                self.optimizer,
                self.images[:2],
                every=EVERY,
                ratio=RATIO,
                threshold=THRESHOLD,
                multiple=MULTIPLE,
            )
        self.started = time.perf_counter() - began

    def epoch(self, labels: Tensor, order: Tensor) -> None:
        began = time.perf_counter()
        self.model.train()
        for rows in order.split(BATCH):
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.model(self.images[rows]), labels[rows])
            if self.pruner is not None:
                loss = loss + self.pruner.penalty(loss)
            loss.backward()
            self.optimizer.step()
        if self.pruner is not None:
            cut = time.perf_counter()
            self.pruner.end_epoch()
            self.cutting += time.perf_counter() - cut
        self.seconds.append(time.perf_counter() - began)

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        self.model.eval()
        return float((self.model(images).argmax(1) == labels).float().mean())

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())


def enlarged(inputs: Tensor) -> Tensor:
    return functional.interpolate(inputs.view(-1, 1, 8, 8), size=16, mode="bilinear")


def compare(seed: int, epochs: int) -> tuple[Training, Training, list[float]]:
    """Train both from one seed; the dense one, the pruned one, and their accuracies."""
    task = digits()
    train, test = task.train(), task.test()
    images = enlarged(train.inputs)
    torch.manual_seed(seed)
    model = network()
    both = Training(copy.deepcopy(model), False, images), Training(model, True, images)
    for epoch in range(epochs):
        order = torch.randperm(len(images))
        for one in both if epoch % 2 else both[::-1]:
            if epoch == epochs * 3 // 5:
                for group in one.optimizer.param_groups:
                    group["lr"] *= 0.1
            one.epoch(train.targets, order)
    return *both, [one.accuracy(enlarged(test.inputs), test.targets) for one in both]


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    seeds = chosen.rounds or (1 if chosen.quick else 3)
    torch.set_num_threads(1)
    print(machine())
    rows, shares, losses = [], [], []
    for seed in range(seeds):
        dense, pruned, (before, after) = compare(seed, EPOCHS)
        took = [sum(one.seconds) + one.started for one in (dense, pruned)]
        shares.append(took[1] / took[0])
        losses.append(before - after)
        flops = [size for report in pruned.pruner.reports for size in report.flops]
        rows.append(
            (
                seed,
                *(f"{seconds:.1f}" for seconds in took),
                f"{pruned.cutting:.1f}",
                f"{shares[-1]:.2f}",
                f"{statistics.median(pruned.seconds[-3:]) / statistics.median(dense.seconds):.2f}",
                *(f"{accuracy:.1%}" for accuracy in (before, after)),
                f"{dense.parameters:,}",
                f"{pruned.parameters:,}",
                f"{flops[-1] / flops[0]:.2f}",
                sum(report.changed for report in pruned.pruner.reports),
            )
        )
        print(f"seed {seed}: {shares[-1]:.2f} of the dense time", file=sys.stderr, flush=True)
    head = "seed,dense s,pruned s,of it cuts,ratio,last epochs,accuracy,pruned,parameters,pruned"
    head += ",FLOPs left,cuts"
    print(table(rows, head.split(",")))
    print(
        f"{EPOCHS} epochs of 1,438 images, batch {BATCH}, SGD with momentum 0.9 at {RATE:g}, cut "
        f"every {EVERY} epochs to multiples of {MULTIPLE} channels, ratio {RATIO:g}, threshold "
        f"{THRESHOLD:g}; one thread"
    )
    return verdict(
        [
            Check("time over dense, all in", statistics.median(shares), 0.7),
            Check("points of accuracy lost", 100 * statistics.median(losses), 2.0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
