"""Make the picture of the README: notebooks/images/first-flight.png.

Run by hand, from the top of the repository, with Chromium or Chrome on the path:

    python -m tests.figures.readme_picture

It plans the product with west0067 (a chemical plant, 67 by 67; Harwell-Boeing collection) over 4
ranks, and draws the pattern and the traffic of that plan side by side. The matrix is read from
DTOOLKIT_TEST_DATA, by default ../shared/data.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import plotly.graph_objects as go
import scipy.io

from dtoolkit.figures import pattern, traffic
from dtoolkit.spmm.plan import plan

REPOSITORY = Path(__file__).parents[2]
PICTURE = REPOSITORY / "notebooks" / "images" / "first-flight.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT = 1240, 610
LARGEST = 150_000  # bytes


def page() -> str:
    """Draw both figures into one page that needs no network."""
    data = Path(os.environ.get("DTOOLKIT_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    A = scipy.io.mmread(data / "mtx" / "west0067.mtx").tocsr()
    flight = plan(A, parts=4, strategy="joint")
    figures = (pattern(A, flight, mode="light"), traffic(flight, mode="light"))
    drawn = "".join(_div(figure, first=not i) for i, figure in enumerate(figures))
    return (
        '<!doctype html><meta charset="utf-8"><body style="margin:0;background:#fff;'
        f'display:flex">{drawn}</body>'
    )


def photograph(html: str, picture: Path) -> None:
    """Let a browser without a window draw the page."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is on the path: install one of them")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "page.html"
        source.write_text(html)
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--disable-quic", "--no-first-run", "--disable-background-networking",
                "--disable-component-update", "--disable-sync",
                "--force-device-scale-factor=1.5", "--virtual-time-budget=15000",
                f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={picture}", source.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )  # fmt: skip


def _div(figure: go.Figure, *, first: bool) -> str:
    figure.update_layout(width=WIDTH // 2, height=HEIGHT)
    return figure.to_html(full_html=False, include_plotlyjs=first, config={"displayModeBar": False})


if __name__ == "__main__":
    photograph(page(), PICTURE)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(REPOSITORY)}: {size:,} bytes")
    if size > LARGEST:
        raise SystemExit(f"the picture has more than {LARGEST:,} bytes")
