from __future__ import annotations

import pytest
import torch
from torch import nn

from dtoolkit.sparsity.sites import find_sites
from tests.sparsity.models import Tied, small_network


class Odd(nn.Module):
    """A weight of its own, a position code, a frozen layer, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 4))
        self.position = nn.Parameter(torch.zeros(1, 9, 4))
        self.words = nn.Embedding(9, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.attention = nn.MultiheadAttention(4, 2)


def names(model, **how):
    return [site.name for site in find_sites(model, **how)]


def test_weights_of_two_dimensions_and_more_no_bias_no_batch_norm():
    assert names(small_network()) == [f"{i}.weight" for i in (0, 3, 4, 7, 9)]


def test_embeddings_position_codes_and_frozen_layers_are_left_out():
    found = ["weight", "attention.in_proj_weight", "attention.out_proj.weight"]
    assert names(Odd()) == found
    assert names(Odd(), include=["words", "position", "frozen.*"]) == [
        "position",
        "words.weight",
        "frozen.weight",
    ]


def test_exclusions_always_hold():
    model = small_network()
    assert names(model, exclude="9") == [f"{i}.weight" for i in (0, 3, 4, 7)]
    assert names(model, include=["0", "9.weight"], exclude=["9"]) == ["0.weight"]
    assert names(Tied(), exclude="embedding") == ["hidden.weight"]
    assert names(Tied(), exclude="output") == ["hidden.weight"]


def test_a_tied_weight_is_one_site():
    first, second = find_sites(Tied())
    assert (first.name, first.aliases) == ("embedding.weight", ("output.weight",))
    assert second.name == "hidden.weight"


def test_wrappers_do_not_change_the_key():
    wrapped = nn.DataParallel(small_network())
    assert [site.key for site in find_sites(wrapped)] == names(small_network())
    compiled = nn.ModuleDict({"_orig_mod": small_network()})  # as torch.compile names it
    assert [site.key for site in find_sites(compiled)] == names(small_network())


@pytest.mark.parametrize(
    ("model", "how", "match"),
    [
        (small_network(), {"exclude": "head"}, "exclude: 'head' matches no weight"),
        (small_network(), {"include": ["0", "1"]}, "include: '1' matches no weight"),
        (nn.Linear(3, 3), {"exclude": "weight"}, "no weight is left"),
        (nn.ReLU(), {}, "no weight is left"),
        (nn.LazyLinear(3), {}, "no shape yet"),
    ],
)
def test_what_cannot_be_meant_is_refused(model, how, match):
    with pytest.raises(ValueError, match=match):
        find_sites(model, **how)


def test_what_is_no_model_or_pattern_is_refused():
    with pytest.raises(TypeError, match=r"wanted a torch\.nn\.Module"):
        find_sites({"weight": torch.zeros(2, 2)})
    with pytest.raises(TypeError, match="as text"):
        find_sites(small_network(), exclude=[3])
