"""Plans in files: NumPy's .npz, without pickles."""

from __future__ import annotations

import json
from dataclasses import astuple
from os import PathLike
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
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
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays["about"]))
        if about["format"] != FORMAT:
            raise PlanError(f"{path} is no plan, but {about['format']!r}")
        if about["version"] != VERSION:
            raise PlanError(
                f"{path} is a plan of version {about['version']}; this dtoolkit reads {VERSION}"
            )
        return _fields(about, arrays)
    except (AttributeError, BadZipFile, EOFError, IndexError, KeyError, TypeError) as error:
        raise PlanError(f"{path} is no plan, or is broken: {error}") from error
    except ValueError as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"{path} is no plan, or is broken: {error}") from error


def _fields(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    parts, nnz = int(about["parts"]), int(about["nnz"])
    loads = zip(about["loads"], arrays["loads"], about["between"], strict=True)
    fields: dict[str, Any] = {
        "shape": tuple(about["shape"]),
        "nnz": nnz,
        "parts": parts,
        "weights": tuple(about["weights"]),
        "rows": _layout("rows", about, arrays),
        "columns": _layout("columns", about, arrays),
        "by_row": np.unpackbits(arrays["by_row"], count=nnz).astype(bool),
        "stages": tuple(
            _stage(parts, number, name, arrays) for number, name in enumerate(about["stages"])
        ),
        "matched": arrays.get("matched"),
        "matching": arrays.get("matching"),
        "loads": tuple(
            Load(name, **dict(zip(_LOAD_FIELDS, rows, strict=True)), between=between)
            for name, rows, between in loads
        ),
        "nodes": arrays.get("nodes"),
        "candidates": tuple(Candidate(*row) for row in about["candidates"]),
    }
    same = ("strategy", "digest", "reason", "setup_seconds", "replication", "turned")
    return fields | {name: about[name] for name in same}


def _stage(parts: int, number: int, name: str, arrays: dict[str, NDArray[Any]]) -> Stage:
    def lists(which: str) -> PairLists:
        ptr, index = arrays[f"{which}_ptr_{number}"], arrays.get(f"{which}_index_{number}")
        if ptr.shape != (parts * parts + 1,) or (index is not None and len(index) != ptr[-1]):
            raise ValueError(f"the lists of {which.upper()} do not fit {parts} parts")
        return PairLists(parts, ptr, index)

    return Stage(name, lists("b"), lists("c"), *arrays[f"stage_{number}"])


def _layout(name: str, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Layout:
    kind, n, parts, block_size = about[name]
    return Layout(kind, n, parts, block_size, arrays.get(f"{name}_vector"))
