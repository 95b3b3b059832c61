"""Small pictures for cards, as inline SVG of a few kilobytes: no script, no link, no style sheet.

Text is in ``currentColor`` and backgrounds are transparent, so that a picture reads wherever its
card does. Each has ``role="img"`` and says in words what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from dtoolkit.figures.bins import bin_matrix, edges
from dtoolkit.figures.theme import CATEGORIES, cividis, ink_on

__all__ = ["bars", "heatmap", "lanes", "owners", "strip"]

MAX_CELLS = 24  # rows and columns of a heatmap
MAX_NAMED = 6  # ranks up to which a cell carries its number
MAX_LEVELS = 10  # colours of a heatmap above MAX_NAMED ranks
MAX_LANES = 16
MAX_PIECES = 64  # of a strip
MAX_PATHS = 8_000  # characters of a timeline; columns are merged until they suffice
COLUMNS = 576  # pixel columns of a timeline, which can be halved six times
LEFT = 40  # pixels for the names of the lanes
FONT = "font-family:inherit;font-size:11px"
FAINT = "rgba(128,128,128,0.22)"


def heatmap(
    matrix: NDArray[np.int64], amount: Callable[[int], str], *, label: str, side: int = 200
) -> str:
    """Draw ranks by ranks as a square; brighter is more, an empty cell is nothing.

    Parameters
    ----------
    matrix : int64 array, shape (n, n)
        ``[source, target]``; summed into 24 by 24 cells where ``n`` is larger.
    amount : callable
        Writes a number with its unit.
    label : str
        What the picture shows, in words, for those who do not see it.
    side : int
        Pixels.

    Returns
    -------
    str
    """
    cells = bin_matrix(matrix, MAX_CELLS)
    n, most = len(cells), int(cells.max(initial=0))
    step = side / max(n, 1)
    draw = _named_cells if n <= MAX_NAMED else _plain_cells
    left, top = 34, 18
    body = [
        f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="{FAINT}"/>',
        f'<g transform="translate({left},{top})">{draw(cells, most, step, amount)}</g>',
        _text(left + side / 2, 12, "to rank →", "middle"),
        f'<g transform="translate(11,{top + side / 2}) rotate(-90)">'
        f"{_text(0, 0, '← from rank', 'middle')}</g>",
    ]
    if len(matrix) == n and 0 < n <= MAX_LANES:
        body += [_text(left - 4, top + (r + 0.5) * step + 4, str(r), "end") for r in range(n)]
    return _svg(left + side + 2, top + side + 2, body, label)


def strip(sizes: NDArray[np.int64], *, label: str, unit: str = "rows", width: int = 420) -> str:
    """Draw a bar cut into parts in proportion to their sizes.

    Parameters
    ----------
    sizes : int64 array, shape (parts,)
        Above ``MAX_PIECES`` parts neighbours are drawn as one piece.
    label, unit : str
        What is shown, and what is counted.
    width : int
        Pixels.
    """
    parts, total = len(sizes), max(int(sizes.sum()), 1)
    shown = min(parts, MAX_PIECES)
    starts = edges(parts, shown)
    pieces, x = [], 0.0
    for piece, (a, b) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        size = int(sizes[a:b].sum())
        wide = size / total * width
        who = f"rank {a}" if b - a == 1 else f"ranks {a} to {b - 1}"
        colour = CATEGORIES[
            piece % 2 * 4
        ]  # two blues by turns: neighbours differ, nothing is meant
        pieces.append(
            f'<rect x="{x:.1f}" y="0" width="{wide:.1f}" height="22" fill="{colour}">'
            f"<title>{who}: {size:,} {escape(unit)}</title></rect>"
        )
        if shown == parts and wide > 18:
            pieces.append(_text(x + wide / 2, 15, str(a), "middle", ink_on(colour)))
        x += wide
    return _svg(width, 22, pieces, label)


def owners(ranks: Sequence[int], *, label: str, width: int = 420) -> str:
    """Draw one cell a row, coloured and numbered by the rank that owns it."""
    step = width / max(len(ranks), 1)
    cells = []
    for row, rank in enumerate(ranks):
        colour = CATEGORIES[rank % len(CATEGORIES)]
        cells.append(
            f'<rect x="{row * step:.4g}" y="0" width="{step - 1:.3g}" height="22" fill="{colour}">'
            f"<title>row {row}: rank {rank}</title></rect>"
        )
        if 7 * len(str(rank)) <= step:
            cells.append(_text((row + 0.5) * step, 15, str(rank), "middle", ink_on(colour)))
    return _svg(width, 22, cells, label)


def bars(rows: Sequence[tuple[str, float, str, bool]], *, label: str, width: int = 280) -> str:
    """Draw horizontal bars: name, value, its text, and whether it is the one in question."""
    most = max((value for _, value, _, _ in rows), default=0) or 1
    left, line = 78, 20
    body = []
    for i, (name, value, text, own) in enumerate(rows):
        y = i * line
        wide = max(1.0, value / most * (width - left - 76))
        colour = CATEGORIES[1 if own else 0]
        body += [
            _text(left - 6, y + 14, name, "end", weight="bold" if own else ""),
            f'<rect x="{left}" y="{y + 4}" width="{wide:.1f}" height="13" fill="{colour}"/>',
            _text(left + wide + 5, y + 14, text, "start", weight="bold" if own else ""),
        ]
    return _svg(width, max(line * len(rows), 1), body, label)


def lanes(
    intervals: Iterable[tuple[int, float, float, str]],
    ranks: int,
    colours: dict[str, str],
    *,
    label: str,
    width: int = 616,
) -> str:
    """Draw who was busy when, one lane a rank, over the span of the intervals.

    Parameters
    ----------
    intervals : iterable of (rank, start, end, operation)
        Seconds. A pixel that several operations share has the colour of the longest of them.
    ranks : int
        Above 16, neighbouring ranks share a lane.
    colours : dict
        Colour of each operation.
    label : str
        What is shown, in words.
    width : int
        Pixels.
    """
    shown = max(1, min(ranks, MAX_LANES))
    names = list(colours)
    busy = _busy(list(intervals), ranks, shown, names)
    line, wide = 14 if shown > 8 else 18, width - LEFT
    paths = _lane_paths(busy, line)
    while sum(map(len, paths)) > MAX_PATHS and busy.shape[2] % 2 == 0:
        busy = busy[:, :, 0::2] + busy[:, :, 1::2]  # half as many columns, twice as wide
        paths = _lane_paths(busy, line)
    body = [
        f'<rect x="{LEFT}" y="{lane * line + 2}" width="{wide}" height="{line - 4}" '
        f'fill="{FAINT}"/>'
        for lane in range(shown)
    ]
    body += [
        f'<path transform="translate({LEFT},0) scale({wide / busy.shape[2]:.6g},1)" d="{path}" '
        f'stroke="{colours[name]}" stroke-width="{line - 4}" fill="none">'
        f"<title>{escape(name)}</title></path>"
        for name, path in zip(names, paths, strict=True)
        if path
    ]
    starts = edges(max(ranks, 1), shown).tolist()
    for lane in range(0, shown, 1 if ranks <= MAX_LANES else 4):
        body.append(_text(LEFT - 6, lane * line + line / 2 + 4, str(starts[lane]), "end"))
    return _svg(width, shown * line, body, label)


def _busy(
    intervals: list[tuple[int, float, float, str]], ranks: int, shown: int, names: list[str]
) -> NDArray[np.float64]:
    """Return how much of each pixel column an operation took: (operations, lanes, columns)."""
    busy = np.zeros((len(names), shown, COLUMNS))
    if not intervals:
        return busy
    number = {name: i for i, name in enumerate(names)}
    op = np.array([number[name] for _, _, _, name in intervals])
    lane = np.array([rank for rank, _, _, _ in intervals]) * shown // max(ranks, 1)
    start = np.array([start for _, start, _, _ in intervals])
    end = np.maximum(start, [end for _, _, end, _ in intervals])
    origin = start.min()
    scale = COLUMNS / ((end.max() - origin) or 1.0)
    start, end = (start - origin) * scale, (end - origin) * scale
    first = np.minimum(start.astype(np.int64), COLUMNS - 1)
    last = np.clip(np.ceil(end).astype(np.int64) - 1, first, COLUMNS - 1)
    count = last - first + 1
    each = np.repeat(np.arange(len(intervals)), count)
    column = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + first[each]
    share = np.minimum(end[each], column + 1) - np.maximum(start[each], column)
    np.add.at(busy, (op[each], lane[each], column), np.maximum(share, 1e-9))
    return busy


def _lane_paths(busy: NDArray[np.float64], line: int) -> list[str]:
    """Draw each operation as one path, over the columns in which it took longest."""
    if not len(busy):
        return []
    winner = np.where(busy.max(axis=0) > 0, busy.argmax(axis=0), -1)
    return [
        "".join(_dashes(row == op, lane * line + line // 2) for lane, row in enumerate(winner))
        for op in range(len(busy))
    ]


def _dashes(mask: NDArray[np.bool_], y: int) -> str:
    """Draw the stretches of True as the dashes of one path; one pixel column is one unit."""
    change = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    path, pen = "", 0
    for start, end in change.reshape(-1, 2).tolist():
        path += f"m{start - pen} 0h{end - start}" if path else f"M{start} {y}h{end - start}"
        pen = end
    return path


def _named_cells(
    cells: NDArray[np.int64], most: int, step: float, amount: Callable[[int], str]
) -> str:
    """Draw each cell with its number."""
    out = []
    for (s, t), value in np.ndenumerate(cells):
        if not value:
            continue
        colour = cividis(int(value) / most)
        words = amount(int(value))
        out.append(
            f'<rect x="{t * step:.4g}" y="{s * step:.4g}" width="{step - 1:.4g}" '
            f'height="{step - 1:.4g}" fill="{colour}"><title>rank {s} to rank {t}: '
            f"{escape(words)}</title></rect>"
        )
        number = words.removesuffix(" rows").removesuffix(" row")
        if len(number) * 6.6 <= step - 3:
            out.append(
                _text((t + 0.5) * step, (s + 0.5) * step + 4, number, "middle", ink_on(colour))
            )
    return "".join(out)


def _plain_cells(
    cells: NDArray[np.int64], most: int, step: float, amount: Callable[[int], str]
) -> str:
    """Draw cells by level of colour, one path a level, so that 1,000 ranks take few bytes."""
    levels = np.ceil(cells / max(most, 1) * MAX_LEVELS).astype(np.int64)
    size = ".92" if step > 12 else "1"
    out = []
    for level in range(1, MAX_LEVELS + 1):
        where = np.argwhere(levels == level)
        squares = [f"M{t} {s}h{size}v{size}h-{size}z" for s, t in where]
        if squares:
            least, upto = (amount(round(most * (level - d) / MAX_LEVELS)) for d in (1, 0))
            out.append(
                f'<path transform="scale({step:.6g})" d="{"".join(squares)}" '
                f'fill="{cividis(level / MAX_LEVELS)}">'
                f"<title>{escape(least)} to {escape(upto)}</title></path>"
            )
    return "".join(out)


def _text(
    x: float, y: float, text: str, anchor: str, colour: str = "currentColor", *, weight: str = ""
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}" fill="{colour}"'
        f"{bold}>{escape(text)}</text>"
    )


def _svg(width: float, height: float, body: Iterable[str], label: str) -> str:
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" style="{FONT}">'
        f"{''.join(body)}</svg>"
    )
