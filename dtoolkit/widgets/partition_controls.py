"""What a person chooses in PartitionPanel: its controls and presets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtoolkit.comm.units import bandwidth, seconds
from dtoolkit.widgets import matrices, networks, planning
from dtoolkit.widgets.controls import Choice, Number, Text, Upload
from dtoolkit.widgets.matrices import GIVEN, UPLOADED, Matrix

__all__ = ["ABSENT", "PRESETS", "groups", "presets", "upload"]

PRESETS: dict[str, dict[str, Any]] = {
    "First look: 4 workers": {
        "matrix": "digits", "parts": 4, "partition": "block", "strategy": "joint",
        "network": "flat", "between": "10GB/s", "latency": "5us",
    },
    "Hubs: where joint wins": {
        "matrix": "hubs", "rows": 8192, "degree": 8, "parts": 16, "partition": "block",
        "strategy": "joint", "network": "two-tier", "ranks_per_node": 4,
    },
    "A mesh: neighbours only": {
        "matrix": "banded", "rows": 16384, "degree": 16, "parts": 16, "partition": "block",
        "strategy": "column", "network": "two-tier", "ranks_per_node": 4,
    },
    "128 GPUs in 16 nodes": {
        "matrix": "rmat", "rows": 16384, "degree": 8, "parts": 128, "partition": "random",
        "strategy": "hier-joint", "network": "two-tier", "ranks_per_node": 8,
        "between": "50GB/s", "inside": "450GB/s",
    },
    "1,024 ranks": {
        "matrix": "local", "rows": 32768, "degree": 4, "parts": 1024, "partition": "block",
        "strategy": "joint", "network": "two-tier", "ranks_per_node": 8,
    },
}  # fmt: skip
"""Name to settings that differ from the defaults; the first is the start."""

ABSENT = {
    GIVEN: "the settings want the matrix that their panel was made with: make this one with it",
    UPLOADED: "the settings want a file that was uploaded: upload it first",
}


def upload(received: Callable[[str, bytes], object]) -> Upload:
    """Return the button that takes a matrix from a file."""
    return Upload(
        "Upload .mtx or .npz",
        ".mtx,.npz,.gz",
        received,
        tip="A Matrix Market file, or what scipy.sparse.save_npz wrote",
    )


def groups(given: Matrix | None, taking: Upload) -> list[tuple[str, list[Any]]]:
    """Return the controls, under their headings.

    Parameters
    ----------
    given : Matrix or None
        What the panel was made with.
    taking : Upload
    """
    offered = {GIVEN: given.label} if given is not None else {}
    offered |= matrices.SETS | matrices.GENERATORS
    first = [
        Choice("matrix", "Matrix", offered, absent=ABSENT),
        Number("rows", "Rows", 4096, 1, 2_000_000, tip="Of a matrix that is drawn"),
        Number("degree", "Nonzeros a row", 8, 1, 256, tip="About, of a matrix that is drawn"),
        taking,
    ]
    how = [
        Number("parts", "Parts", 4, 1, 1024, slide_from=4),
        Choice("partition", "Partitioner", planning.partitioner_choices()),
        Choice("strategy", "Strategy", planning.strategy_names()),
        Number("k", "Dense columns", 64, 1, 4096, tip="Columns of B and C"),
        Choice("dtype", "Numbers", {"float32": "float32", "float64": "float64"}),
        Number("seed", "Seed", 0, 0, 2**31 - 1, tip="Of what is drawn: matrix, parts, B"),
    ]
    wires = [
        Choice("network", "Network", networks.KINDS),
        Number("ranks_per_node", "Ranks a node", 4, 1, 1024),
        Text("between", "Between nodes", "50GB/s", bandwidth, tip="Bytes or bits a second"),
        Text("inside", "Inside a node", "450GB/s", bandwidth, tip="Bytes or bits a second"),
        Text("latency", "Latency", "5us", seconds, tip="Of a message, as 5us"),
    ]
    return [("Matrix", first), ("Layout", how), ("Network (modelled)", wires)]


def presets(matrix: bool, ranks: int | None) -> dict[str, dict[str, Any]]:
    """Return presets, the first of them for what the panel was given.

    Parameters
    ----------
    matrix : bool
        Whether it was given a matrix.
    ranks : int or None
        Of the cluster that it was given.
    """
    known = planning.strategy_names()
    usual = {name: values for name, values in PRESETS.items() if values["strategy"] in known}
    own: dict[str, Any] = {"matrix": GIVEN} if matrix else {}
    if ranks is not None:
        own["parts"] = ranks
    if not own:
        return usual
    start = next(iter(PRESETS.values()))
    return {"What the panel was given": {**start, **own}, **usual}
