"""Numbers by seed, name, step and item; generators that are put back."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from dtoolkit.training.seeds import number, seeded


def draw() -> list[float]:
    return [float(torch.rand(())), float(np.random.rand()), random.random()]


def test_numbers_are_stable_and_their_own() -> None:
    assert number(0, "epoch", 3) == number(0, "epoch", 3) == 4494480799799129723
    different = {
        number(seed, name, *items)
        for seed in (0, 1, -1)
        for name in ("epoch", "forward")
        for items in ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (10,))
    }
    assert len(different) == 3 * 2 * 7
    assert all(0 <= one < 2**63 for one in different)
    with pytest.raises(TypeError, match=r"seed is 0\.5"):
        number(0.5, "epoch")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="an item is 'a'"):
        number(0, "epoch", "a")  # type: ignore[arg-type]


def test_what_is_drawn_depends_on_the_numbers_alone() -> None:
    with seeded(1, "forward", 2, 3):
        first = draw()
    draw()
    with seeded(1, "forward", 2, 3):
        assert draw() == first
    with seeded(1, "forward", 3, 2):
        other = draw()
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_generators_are_put_back_after_errors_and_inside_each_other() -> None:
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    want = [draw(), draw()]
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    got = [draw()]
    drawn = []

    def broken() -> None:
        with seeded(0, "a"):
            drawn.append(draw())
            with seeded(0, "b"):
                draw()
            drawn.append(draw())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    got.append(draw())
    assert got == want
    with seeded(0, "a"):
        assert [draw(), draw()] == drawn
