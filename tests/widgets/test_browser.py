"""PartitionPanel in JupyterLab and Chromium: by keyboard alone, over a reload, in light and dark.

One notebook in one page; the tests follow each other as a person would go on. Times are taken in
the page, from the key to the picture, and printed; the bounds here are several times what they
should be, because machines are shared.
"""

from __future__ import annotations

import re
import time

import pytest

from tests.widgets import lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not lab.BROWSER, reason="no Chromium or Chrome on the path"),
]

CELLS = (
    "import dtoolkit as dt",
    "A = dt.data.power_law(8192, 13, seed=3)  # 105,000 nonzeros",
    "panel = dt.widgets.PartitionPanel(A)\npanel",
)
ANSWER, STOP = 30.0, 15.0  # seconds; 0.5 each is what people are promised on a quiet machine

WATCH = """
() => {
  const plot = document.querySelector(".dtk-panel .js-plotly-plot");
  const said = () => document.querySelector(".dtk-panel [role=status]")?.textContent ?? "";
  const shown = () => plot.querySelector(".gtitle")?.textContent ?? "";
  window.dtk = { drawn: 0 };
  document.addEventListener("keydown", () => {
    const before = { shown: shown(), said: said() }, start = performance.now();
    window.dtk = { drawn: 0, stopped: 0 };
    const mine = window.dtk;
    const look = () => {
      const passed = performance.now() - start;
      if (!mine.drawn && shown() !== before.shown) mine.drawn = passed;
      if (!mine.stopped && said().startsWith("Stopped") && !before.said.startsWith("Stopped"))
        mine.stopped = passed;
      if (passed < 60000 && mine === window.dtk) requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }, true);
}
"""
SOURCES = "() => document.querySelector('.js-plotly-plot')._fullLayout.yaxis2.range"
NAME = """
() => {
  const at = document.activeElement;
  const label = at.labels && at.labels[0] ? at.labels[0].textContent : "";
  return (at.getAttribute("aria-label") || label || at.textContent || "").trim();
}
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    lab.write_notebook(folder / "panel.ipynb", *CELLS)
    with lab.server(folder) as address, lab.browser(folder) as context:
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.choosers = []  # a listener for good: one that comes and goes misses some
        page.on("filechooser", lambda chooser: page.choosers.append(chooser))
        lab.open_notebook(page, address, "panel.ipynb")
        assert lab.run_all(page)
        page.locator(".dtk-panel .gtitle", has_text="joint over 4").wait_for()
        waits_for(page, "sends")
        settles(page)
        page.evaluate(WATCH)
        yield page


def test_start_shows_a_plan_and_its_strategies(page):
    assert "joint over 4 parts" in title(page)
    assert page.locator(".dtk-panel tbody tr").count() >= 4
    assert page.evaluate("() => document.querySelector('.js-plotly-plot').data.length") == 5


def test_choices_answer_by_keyboard(page, capsys):
    tab_to(page, "Strategy")
    times = {}
    for key, word in (("ArrowDown", "column"), ("ArrowDown", "row"), ("ArrowUp", "column")):
        page.keyboard.press(key)
        times[f"strategy {word}"] = drawn(page, f"{word} over 4 parts")
    tab_to(page, "Parts")
    for parts in (1024, 128, 64):
        page.keyboard.press("Control+a")
        page.keyboard.type(f"{parts}")
        page.keyboard.press("Enter")
        times[f"{parts} parts"] = drawn(page, f"column over {parts:,} parts")
        settles(page)
        # Plotly keeps what it derived before, unless the figure says otherwise.
        assert 4 <= page.locator(".dtk-panel .x2tick text").count() <= 10
        first, last = page.evaluate(SOURCES)
        assert first > last
    tab_to(page, "Partitioner")
    page.keyboard.press("ArrowDown")
    times["cyclic rows"] = drawn(page, "column over 64 parts")
    tab_to(page, "Dense columns")
    page.keyboard.press("Control+a")
    page.keyboard.type("8")
    page.keyboard.press("Enter")
    times["8 columns"] = drawn(page, "column over 64 parts")
    told(capsys, "from the key to the picture, 105,000 nonzeros", times)
    assert max(times.values()) < ANSWER


def test_keys_stay_in_the_control_whatever_is_typed(page):
    tab_to(page, "Parts")
    for typed, kept in (("16", "16"), ("0", "16"), ("5000", "16"), ("64", "64")):
        page.keyboard.press("Control+a")
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        if typed != kept:
            words = f"{int(typed):,} was typed"
            page.locator(".dtk-panel [role=alert]", has_text=words).wait_for()
        waits_for(page, f"over {kept} parts")
        settles(page)
        assert page.evaluate(NAME) == "Parts"
        assert page.evaluate("() => document.activeElement.value") == kept
    page.keyboard.press("Tab")
    for key in ("0", "0", "d", "d", "Escape", "b"):  # JupyterLab's for its notebook
        page.keyboard.press(key)
    assert page.locator(".jp-Dialog").count() == 0
    assert page.locator(".dtk-panel").count() == 1
    assert page.locator(".jp-Notebook .jp-Cell").count() == len(CELLS)


def test_a_control_that_is_disabled_leaves_the_focus_beside_it(page):
    tab_to(page, "Parts")
    page.evaluate("() => { window.held = document.activeElement; held.disabled = true; }")
    page.wait_for_function("() => document.activeElement.matches('.dtk-controls')")
    page.evaluate("() => { held.disabled = false; }")


def test_a_long_partitioner_is_stopped_by_keyboard(page, capsys):
    before = title(page)
    tab_to(page, "Partitioner")
    page.keyboard.press("End")
    waits_for(page, "Hypergraph")
    tab_to(page, "Stop")
    page.keyboard.press("Enter")
    page.wait_for_function("() => window.dtk.stopped > 0")
    seconds = page.evaluate("() => window.dtk.stopped") / 1000
    told(capsys, "from the key to the word", {"Stop": seconds})
    assert seconds < STOP
    assert title(page) == before
    tab_to(page, "Partitioner")
    page.keyboard.press("Home")
    waits_for(page, "Blocks of rows")
    settles(page)


def test_a_bad_file_is_told_in_words_and_a_good_one_is_taken(page, data_root):
    before = title(page)
    upload(page, data_root / "mtx" / "mangled5.mtx")
    alert = page.locator(".dtk-panel [role=alert]")
    alert.wait_for()
    assert "mangled5.mtx" in alert.inner_text()
    assert "Traceback" not in alert.inner_text()
    assert title(page) == before
    upload(page, data_root / "mtx" / "west0067.mtx")
    waits_for(page, "west0067.mtx, 67 × 67")
    settles(page)
    assert alert.count() == 0
    assert "67 × 67" in page.locator(".dtk-panel .js-plotly-plot").inner_text()


def test_run_on_the_workers_shows_measured_beside_planned(page):
    tab_to(page, "Parts")
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    waits_for(page, "2 parts")
    settles(page)
    tab_to(page, "Run on the workers")
    page.keyboard.press("Enter")
    waits_for(page, "Measured on 2 workers")
    assert "as planned" in status(page)
    assert "measured" in page.locator(".dtk-panel thead").inner_text()


def test_code_and_exports_by_keyboard(page, tmp_path):
    tab_to(page, "Show the code")
    page.keyboard.press("Enter")
    code = page.locator(".dtk-panel pre[aria-label='The code that makes this']")
    code.wait_for()
    assert "dt.read_matrix('west0067.mtx')" in code.inner_text()
    for label, ending in (
        ("Figure (HTML)", "html"),
        ("Figure (PNG)", "png"),
        ("Data (CSV)", "csv"),
        ("Settings (JSON)", "json"),
    ):
        tab_to(page, label)
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        file = tmp_path / f"file.{ending}"
        download.value.save_as(file)
        assert download.value.suggested_filename.endswith(ending)
        assert file.stat().st_size > 100


def test_every_control_has_a_name(page):
    session = page.context.new_cdp_session(page)
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    panel = session.send("DOM.querySelector", {"nodeId": root, "selector": ".dtk-panel"})["nodeId"]
    nodes = session.send("Accessibility.queryAXTree", {"nodeId": panel})["nodes"]
    controls = {
        *("button", "combobox", "textbox", "spinbutton", "slider", "checkbox", "link"),
        *("progressbar", "listbox", "switch", "searchbox", "DisclosureTriangle"),
    }
    found = [node for node in nodes if node.get("role", {}).get("value") in controls]
    assert len(found) > 20
    nameless = [node["role"]["value"] for node in found if not node["name"]["value"].strip()]
    assert nameless == []
    names = {node["name"]["value"] for node in found}
    assert {"Matrix", "Parts", "Partitioner", "Strategy", "Network", "Stop", "Reset"} <= names


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_reads_at_1000_pixels_in_both_themes(page, theme, tmp_path):
    page.set_viewport_size({"width": 1000, "height": 1100})
    lab.set_theme(page, theme)
    page.wait_for_function(
        "wide => document.querySelector('.js-plotly-plot').layout.width < wide", arg=620
    )
    time.sleep(0.5)  # ink follows the theme
    page.screenshot(path=tmp_path / f"{theme}.png")
    panel = page.locator(".dtk-panel")
    assert panel.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    poor = panel.evaluate(CONTRAST)
    assert poor == []
    page.set_viewport_size({"width": 1400, "height": 1100})
    page.wait_for_function(
        "wide => document.querySelector('.js-plotly-plot').layout.width > wide", arg=620
    )


def test_a_reload_finds_the_figure_as_it_was(page):
    plot = page.locator(".dtk-panel .js-plotly-plot")
    tab_to(page, "Strategy")
    page.keyboard.press("Home")
    entitled(page, "joint over")
    first = plot.screenshot()
    page.keyboard.press("ArrowDown")
    entitled(page, "column over")
    settles(page)
    time.sleep(0.5)
    second, data, said = plot.screenshot(), shown(page), status(page)
    assert second != first
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    time.sleep(1)
    page.reload()
    page.locator(".dtk-panel .gtitle").first.wait_for()
    page.wait_for_function("() => document.querySelector('.dtk-panel [role=status]')")
    time.sleep(1)
    assert shown(page) == data
    assert status(page) == said
    assert "column over" in title(page)
    page.evaluate(WATCH)
    tab_to(page, "Strategy")
    page.keyboard.press("Home")
    entitled(page, "joint over")  # and the panel goes on
    assert page.faults == []


# ------------------------------------------------------------------------------------ helpers

CONTRAST = """
panel => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const linear = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.5) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const texts = "label, [role=status], summary, th, td, caption, pre, .widget-html-content div";
  for (const element of panel.querySelectorAll(texts + ", .gtitle, .xtick text, .ytick text")) {
    if (!element.textContent.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push([element.textContent.slice(0, 40), Math.round(ratio * 10) / 10]);
  }
  return poor;
}
"""


def status(page):
    return page.locator(".dtk-panel [role=status]").inner_text()


def title(page):
    return page.locator(".dtk-panel .js-plotly-plot .gtitle").first.text_content()


def shown(page):
    """What the figure holds: kinds, values and texts of its traces, and its titles."""
    return page.evaluate(
        """() => {
             const plot = document.querySelector(".dtk-panel .js-plotly-plot");
             const of = trace => [trace.type, trace.name, trace.z, trace.x, trace.y, trace.text];
             const layout = plot.layout;
             return JSON.stringify([plot.data.map(of), layout.title.text, layout.height,
               layout.title.subtitle.text, layout.annotations.map(note => note.text)]);
           }"""
    )


def waits_for(page, words, seconds=lab.PATIENCE):
    page.wait_for_function(
        """words => document.querySelector(".dtk-panel [role=status]")
                     ?.textContent.includes(words)""",
        arg=words,
        timeout=1000 * seconds,
    )


def settles(page, seconds=lab.PATIENCE):
    """Wait until nothing goes on."""
    page.wait_for_function(
        """() => !document.querySelector(".dtk-panel [role=status]").textContent.startsWith("…")""",
        timeout=1000 * seconds,
    )


def entitled(page, words):
    """Wait until the figure's title has these words."""
    page.wait_for_function(
        """words => document.querySelector(".dtk-panel .gtitle").textContent.includes(words)""",
        arg=words,
    )


def drawn(page, words):
    """Seconds from the last key to the first picture after it, which comes to say `words`."""
    page.wait_for_function("() => window.dtk.drawn > 0")
    entitled(page, words)
    return page.evaluate("() => window.dtk.drawn") / 1000


def tab_to(page, name):
    """Go to a control by the Tab key alone; from outside the panel its first control is focused."""
    inside = "() => !!document.activeElement.closest('.dtk-panel')"
    if not page.evaluate(inside):
        page.locator(".dtk-panel select").first.focus()
    for key in ("Tab", "Shift+Tab"):
        for _ in range(60):
            if page.evaluate(NAME) == name:
                return
            page.keyboard.press(key)
            if not page.evaluate(inside):
                break
        page.keyboard.press("Shift+Tab" if key == "Tab" else "Tab")
    raise AssertionError(f"no control {name!r} is reached by Tab")


def upload(page, path):
    tab_to(page, "Upload .mtx or .npz")
    page.choosers.clear()
    page.keyboard.press("Enter")
    deadline = time.monotonic() + lab.PATIENCE
    while not page.choosers and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    page.choosers[0].set_files(path)


def told(capsys, what, times):
    with capsys.disabled():
        listed = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items())
        print(f"\n{re.sub(' +', ' ', what)}: {listed}")
