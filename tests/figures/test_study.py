from __future__ import annotations

from types import SimpleNamespace

import pytest

import dtoolkit as dt
from dtoolkit.comm import Network
from dtoolkit.figures import strong_scaling, study_card, study_plan_card, weak_scaling
from tests.figures.checks import check_card, check_figure, words


@pytest.fixture(scope="module")
def study():
    return dt.study(
        None,
        ["580M", "13B"],
        workers=[8, 64, 512],
        micro_batches=[1, 4],
        batch=2048,
        device="A100",
        network=Network.two_tier(nodes=64, ranks_per_node=8, inter="25GB/s", intra="300GB/s"),
    )


def test_strong_scaling_has_a_line_a_model_and_stage(study):
    figure = strong_scaling(study)
    document = check_figure(figure)
    ideal, *lines = document["data"]
    assert ideal["y"][1] == 8 * ideal["y"][0]
    assert len(lines) == 7  # 13 billion parameters fit no A100 unshared
    small = next(line for line in lines if line["name"] == "580M, zero-0, modelled")
    table = study.results
    own = table[(table["model"] == "580M") & (table["stage"] == 0) & (table["workers"] == 64)]
    fixed = own[own["scaling"] == "strong"]["samples_per_second"].max()
    assert small["x"] == [8, 64, 512]
    assert small["y"][1] == pytest.approx(fixed)
    assert small["marker"]["symbol"] == "circle-open"
    assert figure.layout.title.text == "Strong scaling (modelled)"
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert len({(line["line"]["color"], line["line"]["dash"]) for line in lines}) == 7


def test_weak_scaling_begins_at_one(study):
    document = check_figure(weak_scaling(study, model="580M"))
    for line in document["data"]:
        assert line["y"][0] == 1
        assert max(line["y"]) <= 1 + 1e-9
    assert [line["name"] for line in document["data"]] == [
        f"zero-{stage}, modelled" for stage in (0, 1, 2, 3)
    ]


def test_what_was_measured_has_filled_points(study):
    table = study.results.assign(source="measured", outcome="finished")
    measured = SimpleNamespace(results=table)
    document = check_figure(strong_scaling(measured, model="580M"))
    assert document["data"][1]["marker"]["symbol"] == "circle"
    assert document["layout"]["title"]["text"] == "Strong scaling (measured)"


def test_a_study_of_nothing_says_so(study):
    none = SimpleNamespace(results=study.results.assign(fits=False))
    for draw in (strong_scaling, weak_scaling):
        assert "no setting" in draw(none).layout.annotations[0].text


def test_an_unknown_model_is_refused(study):
    with pytest.raises(ValueError, match="model='9B': the study has 580M, 13B"):
        strong_scaling(study, model="9B")


def test_cards(study):
    root, _ = check_card(study_card(study))
    text = words(root)
    assert "modelled" in text
    assert "the fastest that fits" in text
    assert "13B" in text
    root, _ = check_card(study_plan_card(study.plan))
    assert "of the model only its size is known" in words(root)
