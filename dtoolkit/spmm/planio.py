"""Plans in files: NumPy's .npz, without pickles."""

from __future__ import annotations

import json
from dataclasses import astuple
from os import PathLike
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.data.archives import BROKEN
from dtoolkit.errors import PlanError
from dtoolkit.spmm.choice import Candidate
from dtoolkit.spmm.load import Load
from dtoolkit.spmm.pairlists import PairLists, Stage

if TYPE_CHECKING:
    from dtoolkit.spmm.planned import Plan

__all__ = ["read", "write"]

FORMAT = "dtoolkit plan"
VERSION = 2

_STAGE_FIELDS = ("partial", "remote", "through")
_LOAD_FIELDS = ("b_sent", "b_received", "c_sent", "c_received", "work")


def write(path: str | PathLike[str], plan: Plan) -> None:
    """Write a plan to exactly ``path``."""
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "shape": plan.shape,
        "nnz": plan.nnz,
        "parts": plan.parts,
        "strategy": plan.strategy,
        "weights": plan.weights,
        "digest": plan.digest,
        "reason": plan.reason,
        "setup_seconds": plan.setup_seconds,
        "loads": [load.strategy for load in plan.loads],
        "between": [load.between for load in plan.loads],
        "stages": [stage.name for stage in plan.stages],
        "replication": plan.replication,
        "turned": plan.turned,
        "candidates": [astuple(candidate) for candidate in plan.candidates],
    }
    arrays: dict[str, NDArray[Any]] = {"by_row": np.packbits(plan.by_row)}
    for name, layout in (("rows", plan.rows), ("columns", plan.columns)):
        about[name] = [layout.kind, layout.n, layout.parts, layout.block_size]
        if layout.vector is not None:
            arrays[f"{name}_vector"] = layout.vector
    for number, stage in enumerate(plan.stages):
        for name, lists in (("b", stage.b), ("c", stage.c)):
            arrays[f"{name}_ptr_{number}"] = lists.ptr
            if lists.index is not None:
                arrays[f"{name}_index_{number}"] = lists.index
        arrays[f"stage_{number}"] = np.stack([getattr(stage, name) for name in _STAGE_FIELDS])
    if plan.nodes is not None:
        arrays["nodes"] = plan.nodes
    if plan.matched is not None and plan.matching is not None:
        arrays["matched"], arrays["matching"] = plan.matched, plan.matching
    arrays["loads"] = np.array(
        [[getattr(load, name) for name in _LOAD_FIELDS] for load in plan.loads], dtype=np.int64
    )
    arrays["about"] = np.array(json.dumps(about))
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the fields of a plan.

    Raises
    ------
    PlanError
        If the file is no plan, of a later version, or broken.
    """
    arrays = _arrays(path)
    about = _about(path, arrays)
    try:
        return _fields(about, arrays)
    except _Lacks as error:
        raise PlanError(f"{path} is no plan, or is broken: it has no {error.name}") from error
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise PlanError(f"{path} is no plan, or is broken: {error}") from error


class _Lacks(Exception):
    """A field or an array is not there."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Named(dict[str, Any]):
    """What was read, by name; of one `kind`."""

    kind = "array"

    def __missing__(self, name: str) -> Any:
        raise _Lacks(f"{self.kind} {name!r}")


class _Fields(_Named):
    kind = "field"


def _arrays(path: str | PathLike[str]) -> _Named:
    """All arrays of the file."""
    with open(path, "rb") as file:
        if not file.read(2):
            raise PlanError(f"{path} is no plan, or is broken: it is empty")
        if not is_zipfile(file):
            raise PlanError(
                f"{path} is no plan, or is broken: it is no whole archive of NumPy arrays (.npz)"
            )
    arrays, name = _Named(), ""
    try:
        with np.load(path, allow_pickle=False) as kept:
            for name in kept.files:
                arrays[name] = kept[name]
    except BROKEN as error:
        what = f"its array {name!r} cannot be read" if name else "it cannot be read"
        # NumPy's advice on pickles would lead astray: a plan has none.
        why = "" if "pickle" in str(error) else f" ({error})"
        raise PlanError(f"{path} is no plan, or is broken: {what}{why}") from error
    for name, array in arrays.items():
        if name != "about" and array.dtype.kind not in "iu":
            raise PlanError(
                f"{path} is no plan, or is broken: its array {name!r} is {array.dtype}; wanted "
                "integers"
            )
    return arrays


def _about(path: str | PathLike[str], arrays: _Named) -> _Fields:
    """What the plan says of itself."""
    if "about" not in arrays:
        others = ", ".join(list(arrays)[:5]) or "nothing"
        raise PlanError(f"{path} is no plan: it has no array 'about', but holds {others}")
    try:
        about = json.loads(str(arrays["about"]))
    except ValueError as error:
        raise PlanError(f"{path} is no plan: its array 'about' is not JSON ({error})") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        said = about.get("format") if isinstance(about, dict) else about
        raise PlanError(f"{path} is no plan: its array 'about' says {said!r}, not {FORMAT!r}")
    if about.get("version") != VERSION:
        raise PlanError(
            f"{path} is a plan of version {about.get('version')}; this dtoolkit reads {VERSION}"
        )
    return _Fields(about)


def _fields(about: _Fields, arrays: _Named) -> dict[str, Any]:
    parts, nnz = int(about["parts"]), int(about["nnz"])
    rows, columns = _layout("rows", about, arrays), _layout("columns", about, arrays)
    loads = zip(about["loads"], arrays["loads"], about["between"], strict=True)
    fields: dict[str, Any] = {
        "shape": tuple(about["shape"]),
        "nnz": nnz,
        "parts": parts,
        "weights": tuple(about["weights"]),
        "rows": rows,
        "columns": columns,
        "by_row": np.unpackbits(arrays["by_row"], count=nnz).astype(bool),
        "stages": tuple(
            _stage(number, name, arrays, rows, columns)
            for number, name in enumerate(about["stages"])
        ),
        "matched": arrays.get("matched"),
        "matching": arrays.get("matching"),
        "loads": tuple(
            Load(name, **dict(zip(_LOAD_FIELDS, numbers, strict=True)), between=between)
            for name, numbers, between in loads
        ),
        "nodes": arrays.get("nodes"),
        "candidates": tuple(Candidate(*row) for row in about["candidates"]),
    }
    same = ("strategy", "digest", "reason", "setup_seconds", "replication", "turned")
    return fields | {name: about[name] for name in same}


def _stage(number: int, name: str, arrays: _Named, rows: Layout, columns: Layout) -> Stage:
    parts = rows.parts

    def lists(which: str, sizes: NDArray[np.int64]) -> PairLists:
        ptr, index = arrays[f"{which}_ptr_{number}"], arrays.get(f"{which}_index_{number}")
        if ptr.shape != (parts * parts + 1,) or (index is not None and len(index) != ptr[-1]):
            raise ValueError(f"the lists of {which.upper()} do not fit {parts} parts")
        counts = np.diff(ptr).reshape(parts, parts)
        # Lists without rows are of whole shards; any others have lost them.
        if index is None and (counts[counts != sizes] != 0).any():
            raise _Lacks(f"array '{which}_index_{number}'")
        return PairLists(parts, ptr, index)

    of_source, of_target = np.broadcast_arrays(columns.sizes[:, None], rows.sizes)
    b, c = lists("b", of_source), lists("c", of_target)
    return Stage(name, b, c, *arrays[f"stage_{number}"])


def _layout(name: str, about: _Fields, arrays: _Named) -> Layout:
    kind, n, parts, block_size = about[name]
    vector = arrays[f"{name}_vector"] if kind == "parts" else None
    return Layout(kind, n, parts, block_size, vector)
