"""Which kernel each masked layer runs, and what was measured: the card of a compiled model."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from torch import nn

from dtoolkit.sparsity.masks import masks_of
from dtoolkit.sparsity.tiles.compiling import compiled_layers
from dtoolkit.sparsity.tiles.execution import Execution

__all__ = ["SparseReport", "sparse_report"]

_ROWS = 60


def sparse_report(model: nn.Module) -> SparseReport:
    """Say which kernel each masked layer of a compiled model runs, and what was measured.

    Parameters
    ----------
    model : torch.nn.Module
        After :func:`~dtoolkit.sparsity.compile_sparse`.

    Returns
    -------
    SparseReport
        With ``.table()``; a card in a notebook.
    """
    return SparseReport(model)


class SparseReport:
    """Kernels of a model's masked layers.

    Parameters
    ----------
    model : torch.nn.Module
    """

    def __init__(self, model: nn.Module) -> None:
        compiled = {f"{name}.weight" if name else "weight": m for name, m in compiled_layers(model)}
        self._rows = [
            _row(name, tuple(mask.shape), int(mask.sum()), compiled.get(name))
            for name, mask in masks_of(model).items()
        ]

    def table(self) -> pd.DataFrame:
        """One row a masked weight.

        Returns
        -------
        pandas.DataFrame
            ``layer``, ``shape``, ``density``, ``kernel`` (``"dense"`` where zeros are multiplied),
            ``work`` (how the kernel cuts the weight), ``multiplied`` (share of the weight that it
            multiplies), ``measured_kernel``, ``measured`` (``"forward"`` or ``"forward and
            backward"``), ``rows``, ``dense_ms``, ``sparse_ms``, ``ratio`` (dense over sparse),
            ``device``, ``reason``. What was not measured is empty.
        """
        return pd.DataFrame(self._rows, columns=[*_COLUMNS])

    def __repr__(self) -> str:
        lines = [f"SparseReport: {self._summary()}"]
        for row in self._rows:
            figures = "" if row["ratio"] is None else f", {row['ratio']:.2f} times dense"
            lines.append(f"  {row['layer']}: {_work(row)}{figures}: {row['reason']}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from dtoolkit.figures.html import card, facts, table

        head = ["layer", "shape", "density", "kernel", "dense ms", "sparse ms", "ratio", "why"]
        rows = [
            [
                row["layer"],
                " x ".join(map(str, row["shape"])),
                f"{row['density']:.3g}",
                _work(row),
                *(_number(row[key]) for key in ("dense_ms", "sparse_ms", "ratio")),
                row["reason"],
            ]
            for row in self._rows[:_ROWS]
        ]
        caption = "Medians on this device; ratio is dense over sparse. Slower layers stay dense."
        if len(self._rows) > _ROWS:
            caption += f" The first {_ROWS} of {len(self._rows)}; .table() has all."
        measured = [row for row in self._rows if row["ratio"] is not None]
        pairs = [("measured", f"{len(measured)} of {len(self._rows)} layers")]
        if measured:
            pairs += [("what", measured[0]["measured"]), ("device", measured[0]["device"])]
        body = table(head, rows, caption=caption)
        return card("Sparse kernels", self._summary(), facts(pairs), body, badge="measured")

    def _summary(self) -> str:
        sparse = sum(row["kernel"] != "dense" for row in self._rows)
        return f"{sparse} of {len(self._rows)} masked layers run sparse"


_COLUMNS = {
    "layer": "",
    "shape": (),
    "density": 0.0,
    "kernel": "dense",
    "work": "",
    "multiplied": 1.0,
    "measured_kernel": "",
    "measured": "",
    "rows": None,
    "dense_ms": None,
    "sparse_ms": None,
    "ratio": None,
    "device": "",
    "reason": "",
}


def _row(name: str, shape: tuple[int, ...], live: int, module: nn.Module | None) -> dict[str, Any]:
    row = {**_COLUMNS, "layer": name, "shape": shape}
    row["density"] = live / max(math.prod(shape), 1)
    if module is None:
        row["reason"] = "no kernel for the module that owns it"
        return row
    execution: Execution = module.__dict__["_execution"]
    row |= {"kernel": execution.kernel, "reason": execution.reason}
    if execution.kernel == "tiles":
        layout = execution.layout(module.get_buffer("weight_mask"))
        row |= {"work": layout.name, "multiplied": layout.multiplied}
    elif execution.kernel != "dense":
        row["multiplied"] = row["density"]
    measured = execution.measured
    if measured is not None:
        row |= {
            "measured_kernel": measured.kernel,
            "measured": "forward and backward" if measured.backward else "forward",
            "rows": measured.rows,
            "dense_ms": 1e3 * measured.dense,
            "sparse_ms": 1e3 * measured.sparse,
            "ratio": measured.ratio,
            "device": measured.device,
        }
    return row


def _work(row: dict[str, Any]) -> str:
    """Kernel, and how it cuts the weight."""
    return f"{row['kernel']}, {row['work']}" if row["work"] else row["kernel"]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
