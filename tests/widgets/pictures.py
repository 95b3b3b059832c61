"""Pictures of the panels from the real thing: ``python -m tests.widgets.pictures``.

Each panel is opened in JupyterLab and Chromium, does something worth seeing, and is written to
``notebooks/images/panel-<name>.png``. With ``--look FOLDER`` the panels are also written there on
a light and a dark page, wide and at 1,000 pixels, to be looked at.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path

from PIL import Image

import dtoolkit as dt
from tests.widgets import browsing, lab, scenes

IMAGES = Path(__file__).resolve().parents[2] / "notebooks" / "images"
WIDE, NARROW, HIGH = 1360, 1000, 2600  # CSS pixels
MARGIN = 10


def main() -> None:
    """Make the pictures that were asked for."""
    here = [name for name in scenes.PANELS if hasattr(dt.widgets, name)]
    parser = argparse.ArgumentParser(prog="python -m tests.widgets.pictures", description=__doc__)
    parser.add_argument("--panel", action="append", choices=here, help="by default all")
    parser.add_argument("--look", type=Path, help="folder for all looks; images/ stays as it is")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, lab.server(Path(folder)) as address:
        size = {"width": WIDE, "height": HIGH}
        with browsing.notebooks(Path(folder), address, viewport=size) as open_:
            for name in asked.panel or here:
                page = open_(name, "import dtoolkit as dt", f"dt.widgets.{name}()")
                browsing.settles(page)
                if name in scenes.SCENES:
                    scenes.SCENES[name](page)
                    browsing.settles(page)
                written = look(page, name, asked.look) if asked.look else [picture(page, name)]
                for path in written:
                    print(f"{path} {path.stat().st_size / 1e3:.0f} kB", flush=True)
                browsing.leave(page)


def picture(page: object, name: str) -> Path:
    """Write the panel's picture for the README."""
    return save(page, IMAGES / f"panel-{short(name)}.png")


def look(page: object, name: str, folder: Path) -> list[Path]:
    """Write the panel in both themes and both widths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for width in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": HIGH})
        for theme in lab.THEMES:
            lab.set_theme(page, theme)
            page.wait_for_timeout(1500)  # the figure follows the page
            written.append(save(page, folder / f"{short(name)}-{theme}-{width}.png"))
    lab.set_theme(page, "light")
    page.set_viewport_size({"width": WIDE, "height": HIGH})
    return written


def save(page: object, path: Path) -> Path:
    """Write what the panel takes up of the page, in 256 colours."""
    page.evaluate("() => document.activeElement.blur()")
    page.mouse.move(0, 0)
    page.wait_for_timeout(1000)
    box = browsing.part(page).bounding_box()
    clip = {
        "x": box["x"] - MARGIN,
        "y": box["y"] - MARGIN,
        "width": box["width"] + 2 * MARGIN,
        "height": box["height"] + 2 * MARGIN,
    }
    shot = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
    shot.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def short(name: str) -> str:
    """Return a panel's name in file names."""
    return name.removesuffix("Panel").lower()


if __name__ == "__main__":
    main()
