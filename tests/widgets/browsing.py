"""What browser tests of panels share: one page, its panels by number, keys, words and looks.

A test module asks for ``lab_page`` and opens its notebook with it::

    @pytest.fixture(scope="module")
    def page(lab_page):
        return lab_page("traffic", "import dtoolkit as dt", "dt.widgets.TrafficPanel()")

JupyterLab is started once for all modules, Chromium once for each (its cache stays). All helpers
take the page, and the panel's number on it where there are several.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.widgets import lab

PANEL = ".dtk-panel"
MARKS = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not lab.BROWSER, reason="no Chromium or Chrome on the path"),
]
"""``pytestmark`` of every module that needs the browser."""

EXPORTS = {
    "Figure (HTML)": "html",
    "Figure (PNG)": "png",
    "Data (CSV)": "csv",
    "Settings (JSON)": "json",
}
CODE = "pre[aria-label='The code that makes this']"
NAME = """
() => {
  const at = document.activeElement;
  const label = at.labels && at.labels[0] ? at.labels[0].textContent : "";
  return (at.getAttribute("aria-label") || label || at.textContent || "").trim();
}
"""
ROLES = frozenset(
    {
        *("button", "combobox", "textbox", "spinbutton", "slider", "checkbox", "link", "radio"),
        *("progressbar", "listbox", "switch", "searchbox", "DisclosureTriangle", "tab"),
    }
)
HEED = ("serious", "critical")  # of what axe finds
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


@contextlib.contextmanager
def notebooks(folder: Path, address: str, **options: object) -> Iterator[Callable[..., object]]:
    """Run Chromium; yields ``open(name, *cells)``, which runs a notebook and returns its page.

    Where no cells are given the notebook is there already. Its kernel ends with the browser.
    """
    with lab.browser(folder, **options) as context:
        opened = []

        def open_(name: str, *cells: str, run: bool = True) -> object:
            if cells:
                lab.write_notebook(folder / f"{name}.ipynb", *cells)
            page = context.new_page()
            page.faults = []
            page.on("pageerror", lambda error: page.faults.append(str(error)))
            page.choosers = []  # a listener for good: one that comes and goes misses some
            page.on("filechooser", lambda chooser: page.choosers.append(chooser))
            opened.append(page)
            lab.open_notebook(page, address, f"{name}.ipynb")
            lab.set_theme(page, "light")
            if run:
                assert lab.run_all(page), f"a cell of {name}.ipynb raised"
            return page

        try:
            yield open_
        finally:
            for page in opened:
                if not page.is_closed():
                    leave(page)


def leave(page):
    """Close a page and end the kernels."""
    page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")
    page.close()


def part(page, selector="", panel=0):
    """The panel, or what is in it."""
    whole = page.locator(PANEL).nth(panel)
    return whole.locator(selector) if selector else whole


def status(page, panel=0):
    return part(page, "[role=status]", panel).first.inner_text()


def title(page, panel=0):
    return part(page, ".js-plotly-plot .gtitle", panel).first.text_content()


def shown(page, panel=0):
    """What the figure holds: kinds, values and texts of its traces, and its titles."""
    return page.evaluate(
        """panel => {
             const plot = document.querySelectorAll(".dtk-panel")[panel]
               .querySelector(".js-plotly-plot");
             const of = trace => [trace.type, trace.name, trace.z, trace.x, trace.y, trace.text];
             const layout = plot.layout;
             return JSON.stringify([plot.data.map(of), layout.title?.text, layout.height,
               layout.title?.subtitle?.text, layout.annotations?.map(note => note.text)]);
           }""",
        panel,
    )


def waits_for(page, words, panel=0, seconds=lab.PATIENCE):
    """Wait until the status line has these words."""
    page.wait_for_function(
        """([words, panel]) => document.querySelectorAll(".dtk-panel")[panel]
             ?.querySelector("[role=status]")?.textContent.includes(words)""",
        arg=[words, panel],
        timeout=1000 * seconds,
    )


def settles(page, panel=0, seconds=lab.PATIENCE):
    """Wait until nothing goes on and something is said."""
    page.wait_for_function(
        """panel => {
             const said = document.querySelectorAll(".dtk-panel")[panel]
               ?.querySelector("[role=status]")?.textContent;
             return said && !said.startsWith("…");
           }""",
        arg=panel,
        timeout=1000 * seconds,
    )


def entitled(page, words, panel=0):
    """Wait until the figure's title has these words."""
    page.wait_for_function(
        """([words, panel]) => document.querySelectorAll(".dtk-panel")[panel]
             ?.querySelector(".gtitle")?.textContent.includes(words)""",
        arg=[words, panel],
    )


def tab_to(page, name, panel=0):
    """Go to a control by the Tab key alone, and begin anew at the panel's first at its end."""
    inside = """panel => document.activeElement.closest(".dtk-panel")
                  === document.querySelectorAll(".dtk-panel")[panel]"""
    for _ in range(2):
        if not page.evaluate(inside, panel):
            part(page, ":is(select, input, button):enabled", panel).first.focus()
        while page.evaluate(inside, panel):
            if page.evaluate(NAME) == name:
                return
            page.keyboard.press("Tab")
    raise AssertionError(f"no control {name!r} is reached by Tab")


def press(page, name, panel=0):
    """Press a button by keyboard."""
    tab_to(page, name, panel)
    page.keyboard.press("Enter")


def fill(page, name, text, panel=0):
    """Type a number or a text in place of the one that is there, by keyboard."""
    tab_to(page, name, panel)
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.type(f"{text}")
    page.keyboard.press("Enter")


def choose(page, name, words, panel=0):
    """Choose what begins with these words, by typing them."""
    tab_to(page, name, panel)
    page.keyboard.type(words)


def upload(page, label, path, panel=0):
    """Give a file to an upload button, by keyboard."""
    page.choosers.clear()
    press(page, label, panel)
    deadline = time.monotonic() + lab.PATIENCE
    while not page.choosers and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    page.choosers[0].set_files(path)


def saves(page, label, folder, panel=0):
    """Press an export by keyboard; returns the file."""
    tab_to(page, label, panel)
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    file = Path(folder) / download.value.suggested_filename
    download.value.save_as(file)
    return file


def names(page, panel=0):
    """Names of all controls, as a screen reader has them: (role, name)."""
    session = page.context.new_cdp_session(page)
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    found = session.send("DOM.querySelectorAll", {"nodeId": root, "selector": PANEL})["nodeIds"]
    nodes = session.send("Accessibility.queryAXTree", {"nodeId": found[panel]})["nodes"]
    session.detach()
    return [
        (node["role"]["value"], node["name"]["value"].strip())
        for node in nodes
        if node.get("role", {}).get("value") in ROLES
    ]


def axe(page, panel=0):
    """Serious and critical violations that axe-core finds in the panel, as (rule, where)."""
    from axe_playwright_python.sync_playwright import Axe

    mark = f"dtk-examined-{panel}"
    part(page, "", panel).evaluate("(e, mark) => e.setAttribute('data-examined', mark)", mark)
    found = Axe().run(page, f"[data-examined={mark}]", {"resultTypes": ["violations"]})
    return [
        (one["id"], node["html"][:200])
        for one in found.response["violations"]
        if one["impact"] in HEED
        for node in one["nodes"]
    ]


def contrast(page, panel=0):
    """Texts that are too faint to read, with their contrast."""
    return part(page, "", panel).evaluate(CONTRAST)


def overflows(page, panel=0):
    """Whether the panel is wider than its room."""
    return part(page, "", panel).evaluate("e => e.scrollWidth > e.clientWidth + 1")


def keep(page):
    """Save the notebook and load the page anew; the kernel goes on."""
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_timeout(500)
    page.reload()
    page.locator(f"{PANEL} .gtitle").first.wait_for()


def told(capsys, what, times):
    """Print times beside the tests' own lines."""
    with capsys.disabled():
        listed = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items())
        print(f"\n{re.sub(' +', ' ', what)}: {listed}")
