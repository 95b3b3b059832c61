"""The base of all panels, without a browser: state, errors, exports, settings, the end."""

from __future__ import annotations

import gc
import json
import weakref
from unittest.mock import Mock

import plotly.graph_objects as go
import pytest

from dtoolkit.errors import MatrixFormatError, RankError
from dtoolkit.widgets import exports
from dtoolkit.widgets.core import in_words
from tests.widgets.squares import Squares


@pytest.fixture
def panel():
    made = Squares()
    yield made
    made.close()


def test_computes_at_once_where_no_loop_runs(panel):
    assert panel.squares == [0, 1, 4]
    quiet = {"activity": "idle", "error": "", "details": "", "done": 0, "total": 0}
    assert panel.state == {**quiet, "status": "3 squares"}
    panel.set(count=5)
    assert panel.squares[-1] == 16
    assert repr(panel) == "<Squares: 5 squares>"


def test_an_error_is_shown_in_words_and_the_panel_works_on(panel):
    panel.set(kind="bad")
    assert panel.state["error"] == "KeyError: 'no such square'"
    assert "Traceback" in panel.state["details"]
    assert "did not work" in panel.state["status"]
    assert 'role="alert"' in panel._shell._error.value
    assert panel.squares == [0, 1, 4]
    panel.set(kind="fast", count=4)
    assert panel.state["error"] == ""
    assert panel._shell._error.value == ""
    assert len(panel.squares) == 4


def test_an_error_of_a_callback_is_shown(panel):
    panel._load.take("x.json", b"{")
    assert "no JSON" in panel.state["error"]
    assert panel.state["status"] == "3 squares"


def test_words_leave_out_remote_tracebacks():
    error = RankError(
        rank=1, address="tcp://a", operation="f", cause="ValueError: x", traceback="T"
    )
    text, details = in_words(error)
    assert text == "rank 1 (tcp://a) raised in f: ValueError: x"
    assert "--- traceback of rank 1 ---" in details
    assert in_words(MatrixFormatError("a.mtx", "is odd", 3))[0] == "a.mtx, line 3: is odd"
    assert len(in_words(ValueError("word " * 1000))[0]) < 720
    assert in_words(RuntimeError())[0] == "RuntimeError: no more is known"


def test_what_is_shown_is_escaped(panel):
    panel.say("<script>alert(1)</script>")
    assert "<script>" not in panel._shell._status.value
    panel.fail(ValueError("<img onerror=x>"))
    assert "<img" not in panel._shell._error.value


def test_settings_go_round(panel):
    panel.set(count=9, unit="km")
    text = panel.settings_text()
    panel.reset()
    assert panel.settings == {"count": 3, "kind": "fast", "unit": "m"}
    panel.load_settings(text)
    assert panel.settings == {"count": 9, "kind": "fast", "unit": "km"}
    assert len(panel.squares) == 9


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"count": 51}, "Count: 51 is not possible, want a whole number from 1 to 50"),
        ({"count": True}, "Count: True"),
        ({"count": "3"}, "Count: '3'"),
        ({"count": 4, "kind": "none"}, "Kind: 'none' is not known, choose one of fast, slow, bad"),
        ({"unit": "5"}, "Unit='5' is no unit"),
        ({"unit": 5}, "Unit: 5 is not a text"),
        ({"colour": 1}, "'colour' is no setting: there are count, kind, unit"),
    ],
)
def test_settings_that_make_no_sense_change_nothing(panel, values, words):
    before = panel.settings
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        panel.set(**values)
    assert panel.settings == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        ("[1]", "no settings"),
        ('{"settings": 3}', "no settings"),
        ('{"panel": "Other", "format": 1, "settings": {}}', "settings of 'Other'"),
        ('{"panel": "Squares", "format": 9, "settings": {}}', "format 9"),
        ('{"panel": "Squares", "format": 1, "settings": {"count": null}}', "Count: None"),
    ],
)
def test_files_that_are_no_settings_are_refused(panel, text, words):
    with pytest.raises(ValueError, match=words):
        panel.load_settings(text)


def test_presets_and_reset(panel):
    panel._preset.widget.value = "Five"
    assert len(panel.squares) == 5
    panel.set(count=8)
    assert panel._preset.value == "Own choices"
    panel._preset.widget.value = "Five"
    assert len(panel.squares) == 5
    panel.set(count=3)
    assert panel._preset.value == "Three"
    panel.set(count=8)
    panel._preset.widget.value = "Own choices"
    assert len(panel.squares) == 8
    panel.reset()
    assert panel._preset.value == "Three"
    assert len(panel.squares) == 3


def test_the_slider_follows_the_number_and_sets_it(panel):
    number, slider = panel.controls["count"].widget.children
    number.value = 40
    assert slider.value == 40
    slider.value = 8.0
    assert number.value == 8
    assert len(panel.squares) == 8
    number.value = 1  # below where the slider begins
    assert slider.value == 2
    assert number.value == 1


@pytest.mark.parametrize("typed", [0, -3, 51, 5000])
def test_a_number_outside_its_range_is_told_and_changes_nothing(panel, typed):
    number, slider = panel.controls["count"].widget.children
    number.value = 40
    computed = panel.computed
    number.value = typed
    assert panel.state["error"] == (f"Count must be 1 to 50; {typed:,} was typed, and it stays 40")
    assert (panel.settings["count"], number.value, slider.value) == (40, 40, 40)
    assert panel.computed == computed
    number.value = 7
    assert panel.state["error"] == ""
    assert len(panel.squares) == 7


def test_the_browser_is_told_that_a_number_stays(panel):
    number = panel.controls["count"].widget.children[0]
    sent = []
    number.comm = Mock(comm_id="1")
    number._send = lambda message, buffers=None: sent.append(message)
    number.set_state({"value": 0})  # as it comes from there
    assert [m["state"]["value"] for m in sent if m["method"] == "update"][-1] == 3


def test_exports_are_files_of_their_kind(panel, tmp_path):
    panel.save_figure(tmp_path / "figure.html")
    page = (tmp_path / "figure.html").read_text()
    assert page.count("<title>Squares</title>") == 1
    assert 'src="http' not in page
    assert (
        "cdn.plot.ly" not in page.replace("https://cdn.plot.ly/", "", 0).split("<body>")[-1][-5000:]
    )
    panel.save_data(tmp_path / "data.csv")
    assert (tmp_path / "data.csv").read_text() == "square\n0\n1\n4\n"
    space = {}
    exec(panel.code(), space)
    assert space["squares"] == panel.squares


def test_export_buttons_hand_files_to_the_browser(panel):
    sent = []
    panel.bridge.send = lambda message, buffers=None: sent.append((message, buffers))
    for label in ("_export_html", "_export_png", "_export_csv", "_export_settings"):
        panel._guard(label)(None)
    kinds = [message["kind"] for message, _ in sent]
    assert kinds == ["save", "png", "save", "save"]
    names = [message["name"] for message, _ in sent if "name" in message]
    assert names == ["squares-figure.html", "squares-data.csv", "squares-settings.json"]
    assert json.loads(sent[-1][1][0])["settings"]["count"] == 3
    numbers = [message["number"] for message, _ in sent]
    assert numbers == sorted(set(numbers))


def test_code_follows_the_choices_while_it_is_shown(panel):
    assert panel._shell._code.value == ""
    panel._toggle_code(None)
    assert "range(3)" in panel._shell._code.value
    panel.set(count=6)
    assert "range(6)" in panel._shell._code.value
    panel._toggle_code(None)
    assert panel._shell._code.value == ""


def test_titles_are_escaped_in_exports():
    page = exports.figure_html(go.Figure(), "a < b & c").decode()
    assert "<title>a &lt; b &amp; c</title>" in page


def test_close_takes_every_widget_away_and_can_be_repeated():
    panel = Squares()
    ended = []
    panel.on_close(lambda: ended.append(True))
    view = panel.view
    panel.close()
    panel.close()
    assert ended == [True]
    assert view.comm is None
    assert panel._live.widget.comm is None
    assert panel.bridge.comm is None
    panel._guard("run")(None)  # what a browser still sends does nothing
    assert repr(panel) == "<Squares: closed>"


def test_a_panel_that_nobody_shows_or_holds_ends():
    panel = Squares()
    ended = []
    panel.on_close(lambda: ended.append(True))
    there = weakref.ref(panel)
    del panel
    gc.collect()
    assert there() is None
    assert ended == [True]


def test_a_panel_that_is_shown_lives_on():
    panel = Squares()
    bundle = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in str(bundle)
    there = weakref.ref(panel)
    del panel
    gc.collect()
    assert there() is not None
    there().close()
