"""The browser's side of a panel: what ipywidgets alone cannot do.

Files are saved from memory, the figure is saved as PNG by Plotly's own button, controls that have
no accessible name are given one or taken out of the tab order, the notebook's shortcuts are kept
from the panel's controls, uploads that the connection would not carry are refused, and the panel
learns whether it stands on a dark page and how wide it is. A panel works without it, where a front
end does not run it; nothing is loaded from a network.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

__all__ = ["MAX_UPLOAD", "Bridge"]

MAX_UPLOAD = 9_000_000
"""Bytes of a file that a person may upload: Jupyter's servers cut messages above 10 MiB."""

_ESM = """
function dark(element) {
  const said = document.body.dataset.jpThemeLight;
  if (said !== undefined) return said === "false";
  for (let at = element; at; at = at.parentElement) {
    const parts = getComputedStyle(at).backgroundColor.match(/[\\d.]+/g);
    if (parts && parts.length >= 3 && (parts.length < 4 || Number(parts[3]) > 0.5))
      return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] < 110;
  }
  return false;
}
function guard(panel) {
  // JupyterLab would take arrows, Enter and digits that are meant for the panel as its shortcuts,
  // where two zeros restart the kernel; and its notebook draws the focus to the active cell when a
  // key comes by. The page itself still does what it does with keys, as Tab.
  panel.setAttribute("data-lm-suppress-shortcuts", "true");
  const stay = (event) => event.stopPropagation();
  for (const kind of ["keydown", "keypress", "keyup"]) panel.addEventListener(kind, stay);
  // A control that is disabled while it has the focus would lose it, and keys would go elsewhere.
  const hold = new MutationObserver((records) => {
    for (const { target } of records) {
      if (!target.disabled || document.activeElement !== target) continue;
      const near = target.closest(".dtk-buttons, .dtk-controls") ?? panel;
      near.tabIndex = -1;  // can be focused, and Tab goes on from there
      near.focus({ preventScroll: true });
    }
  });
  hold.observe(panel, { attributes: true, attributeFilter: ["disabled"], subtree: true });
  return () => {
    hold.disconnect();
    for (const kind of ["keydown", "keypress", "keyup"]) panel.removeEventListener(kind, stay);
  };
}
function name(panel) {
  for (const handle of panel.querySelectorAll(".noUi-handle")) {
    // The number beside it says the same and is reached by keyboard: this one is for the mouse.
    if (handle.tabIndex !== -1) handle.tabIndex = -1;
    const slider = handle.closest(".noUi-target");
    if (slider && slider.ariaHidden !== "true") slider.ariaHidden = "true";
  }
  for (const button of panel.querySelectorAll(".modebar-btn:not([aria-label])"))
    button.setAttribute("aria-label", button.dataset.title || "figure tool");
  for (const icon of panel.querySelectorAll("button > i:not([aria-hidden])"))
    icon.ariaHidden = "true";  // a picture from a font, which has a letter's name
  for (const button of panel.querySelectorAll(".widget-upload")) {
    const text = button.lastChild;  // ipywidgets counts the files there
    if (text && text.nodeType === 3) {
      const plain = text.data.replace(/ \\(\\d+\\)$/, "");
      if (plain !== text.data) text.data = plain;
    }
  }
  for (const input of panel.querySelectorAll("input[type=file]:not([aria-label])"))
    input.setAttribute("aria-label", "file");
}
function save(message, buffer) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([buffer], { type: message.type }));
  link.download = message.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function tell(model, changes) {
  let news = false;
  for (const [key, value] of Object.entries(changes))
    if (model.get(key) !== value) { model.set(key, value); news = true; }
  if (news) model.save_changes();
}
function watch(model, panel) {
  const limit = model.get("max_upload");
  const names = () => name(panel);
  const look = () => tell(model, { dark: dark(panel) });
  const measure = () => {
    if (panel.clientWidth) tell(model, { width: Math.round(panel.clientWidth) });
  };
  let asked = 0;
  const changes = new MutationObserver(() => {
    if (!asked) asked = requestAnimationFrame(() => { asked = 0; names(); });
  });
  changes.observe(panel, { childList: true, subtree: true });
  const theme = new MutationObserver(look);
  theme.observe(document.body, { attributes: true });
  let later = 0;
  const size = new ResizeObserver(() => { clearTimeout(later); later = setTimeout(measure, 150); });
  size.observe(panel);
  const refuse = (event) => {
    const file = event.target.type === "file" && event.target.files[0];
    if (!file || file.size <= limit) return;
    event.stopImmediatePropagation();
    event.target.value = "";
    model.send({ kind: "too big", name: file.name, size: file.size });
  };
  panel.addEventListener("change", refuse, true);
  names(); look(); measure();
  const free = guard(panel);
  return () => {
    free(); changes.disconnect(); theme.disconnect(); size.disconnect();
    panel.removeEventListener("change", refuse, true);
  };
}
function render({ model, el }) {
  let leave = () => {}, gone = false;
  const start = (tries) => {
    const panel = el.closest(".dtk-panel");
    if (panel) leave = watch(model, panel);
    else if (tries && !gone) setTimeout(() => start(tries - 1), 50);
  };
  start(100);
  const receive = (message, buffers) => {
    if (!message || (model.dtkDone ?? 0) >= message.number) return;  // another view has done it
    model.dtkDone = message.number;
    if (message.kind === "save") save(message, buffers[0]);
    const panel = el.closest(".dtk-panel");
    if (message.kind === "png" && panel)
      panel.querySelector(".modebar-btn[data-title^='Download plot']")?.click();
  };
  model.on("msg:custom", receive);
  return () => { gone = true; leave(); model.off("msg:custom", receive); };
}
export default { render };
"""

_CSS = """
.dtk-panel { container-type: inline-size; overflow: visible; }
.dtk-panel .dtk-halves { display: flex; flex-flow: row wrap; gap: 8px 20px; }
.dtk-panel .dtk-halves { align-items: flex-start; }
.dtk-panel .dtk-controls { flex: 0 0 304px; width: 304px; min-width: 0; overflow: visible; }
.dtk-panel .dtk-shown { flex: 1 1 480px; min-width: 0; overflow: visible; }
.dtk-panel .dtk-figure, .dtk-panel .dtk-figure > * { min-width: 0; overflow: hidden; }
.dtk-panel .dtk-buttons { flex-flow: row wrap; gap: 4px; overflow: visible; }
.dtk-panel .dtk-buttons > * { margin: 0; padding: 0 8px; }
.dtk-panel .dtk-shown > * { margin-left: 0; margin-right: 0; }
.dtk-panel .widget-html { min-width: 0; max-width: 100%; }
.dtk-panel .widget-html > .widget-html-content { line-height: 1.45; min-width: 0; }
.dtk-panel .widget-html > .widget-html-content { flex: 1 1 0; max-width: 100%; }
.dtk-panel :is(button, select, input, summary, pre, textarea):focus-visible {
  outline: 2px solid var(--jp-brand-color1, #0072b2); outline-offset: 1px;
}
.dtk-panel :is(button, select, input) { font-family: var(--jp-ui-font-family, inherit); }
.dtk-panel select { text-overflow: ellipsis; }
.dtk-panel :is(.dtk-controls, .dtk-buttons):focus { outline: none; }
body[data-jp-theme-light="false"] .dtk-panel .widget-dropdown > select {
  background-image: url("data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'\
 viewBox='0 0 18 18'%3E%3Cpath d='M5 7l4 4 4-4' fill='none' stroke='%23ccc' stroke-width='1.8'/%3E\
%3C/svg%3E");
}
.dtk-bridge { display: none; }
"""


class Bridge(anywidget.AnyWidget):
    """What a panel has in the browser beside its controls; it shows nothing itself.

    Attributes
    ----------
    dark : bool
        Whether the page is dark.
    width : int
        Of the panel, in CSS pixels; 0 as long as no browser has told it.
    """

    _esm = _ESM
    _css = _CSS
    dark = traitlets.Bool(False).tag(sync=True)
    width = traitlets.Int(0).tag(sync=True)
    max_upload = traitlets.Int(MAX_UPLOAD).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._numbers = itertools.count(1)
        self.add_class("dtk-bridge")

    def save(self, name: str, content: bytes, kind: str) -> None:
        """Let the browser save a file.

        Parameters
        ----------
        name : str
            Of the file.
        content : bytes
        kind : str
            Media type, as ``"text/csv"``.
        """
        self.send(
            {"kind": "save", "name": name, "type": kind, "number": next(self._numbers)}, [content]
        )

    def save_png(self) -> None:
        """Let Plotly's own button in the browser save the figure as it is shown."""
        self.send({"kind": "png", "number": next(self._numbers)})

    def on_too_big(self, listener: Callable[[str, int], object]) -> None:
        """Call ``listener(name, bytes)`` for a file that was too large to upload."""

        def receive(_: Any, message: Any, __: Any) -> None:
            if isinstance(message, dict) and message.get("kind") == "too big":
                listener(str(message.get("name", "")), int(message.get("size", 0)))

        self.on_msg(receive)
