"""What keeping a model sparse costs, beside a dense training step.

``python -m tests.benchmarks.sparsity [--quick]`` trains a ResNet-18 with the stem for CIFAR on
batches of 32 images of 3 x 32 x 32, on one thread. In every round run a step of the dense model,
what the sparsifier does between two updates of the masks, and an update of RigL at density 0.1, for
SGD with momentum and for AdamW. Exits 1 if masking takes more than 5% of a dense step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from dtoolkit.sparsity import Constant, Sparsifier
from tests.benchmarks.common import Check, interleave, machine, options, ratios, table, verdict

OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3),
}


class Block(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


def resnet18() -> nn.Module:
    """ResNet-18 for CIFAR: a 3 x 3 stem without pooling."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def candidates(name: str) -> dict[str, Callable[[], object]]:
    """A dense step, masking, and an update of the masks, for one optimizer."""
    inputs, labels = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))

    def stepper(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], object]:
        def step() -> None:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

        return step

    dense = resnet18()
    sparse = resnet18()
    optimizer = OPTIMIZERS[name](sparse)
    how = {"method": "rigl", "density": 0.1, "distribution": "erk"}
    rare = Sparsifier(sparse, optimizer, schedule=Constant(every=1 << 30), **how)
    stepper(sparse, optimizer)()  # gradients and the optimizer's state are there from now on
    always = Sparsifier(sparse, optimizer, schedule=Constant(every=1), **how)
    return {
        "dense step": stepper(dense, OPTIMIZERS[name](dense)),
        "masking": rare.step,
        "masking and update": always.step,
    }


def main() -> int:
    """Measure, print, judge."""
    chosen = options(__doc__)
    rounds = chosen.rounds or (3 if chosen.quick else 15)
    torch.set_num_threads(1)
    print(machine())
    rows, checks = [], []
    for name in OPTIMIZERS:
        found = ratios(interleave(candidates(name), rounds=rounds), to="dense step")
        rows += [(name, what, r, f"{1e3 * r.seconds:.1f}") for what, r in found.items()]
        checks.append(Check(f"masking over a dense step, {name}", found["masking"].median, 0.05))
    print(table(rows, ("optimizer", "what", "of a dense step", "ms")))
    print(f"{rounds} rounds; medians (and quartiles) of ratios within a round")
    return verdict(checks)


if __name__ == "__main__":
    sys.exit(main())
