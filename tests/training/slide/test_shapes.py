"""What SLIDE's neurons are worth: as many random ones learn clearly less."""

from __future__ import annotations

from tests.training.slide import shapes


def test_random_neurons_are_clearly_worse_than_hashed_ones():
    found = shapes.compare(shapes.QUICK, range(1), whole=False)
    last = found[found["step"] == shapes.QUICK.steps].set_index("layer")["precision"]
    assert last["SLIDE"] > last["random"] + shapes.CLEARLY
    assert found["active"].max() < 0.02 * shapes.QUICK.classes
