"""Where a panel's matrix comes from: what it was given, built-in sets, generators, files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.sparse import csr_array

from dtoolkit import data
from dtoolkit.data import as_csr, read_matrix
from dtoolkit.errors import MatrixFormatError

__all__ = ["GENERATORS", "GIVEN", "SETS", "UPLOADED", "Matrix", "make", "read_upload"]

GIVEN, UPLOADED = "given", "uploaded"

SETS = {
    "digits": "Digits: neighbours of 1,797 images",
    "stdlib": "Python's library: who calls whom",
}
"""Built-in sets: key in the settings to words."""

GENERATORS = {
    "power-law": "Power law, scattered",
    "local": "Power law, mostly local",
    "rmat": "R-MAT graph",
    "hubs": "Hubs: few full rows and columns",
    "banded": "Banded, as from a mesh",
    "uniform": "Uniform at random",
}
"""Generators: key in the settings to words."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix and how to come by it again.

    Attributes
    ----------
    A : csr_array
    label : str
        In words.
    code : str
        An expression of Python that makes it, with ``dt`` for dtoolkit.
    comment : str
        What a person has to know about that expression.
    """

    A: csr_array
    label: str
    code: str
    comment: str = ""


def make(kind: str, rows: int, degree: int, seed: int) -> Matrix:
    """Load a built-in set, or draw a matrix.

    Parameters
    ----------
    kind : str
        A key of ``SETS`` or ``GENERATORS``.
    rows, degree, seed : int
        Of a drawn matrix: rows, nonzeros a row (about), and seed.

    Raises
    ------
    ValueError
        What the generator says of its arguments.
    """
    if kind in SETS:
        loaders = {"digits": ("digits_graph", data.digits_graph)}
        name, load = loaders.get(kind, ("stdlib_calls", data.stdlib_calls))
        dataset = load()
        return Matrix(dataset.matrix, SETS[kind], f"dt.data.{name}()")
    draw, arguments = _call(kind, rows, degree)
    words = "".join(f", {key}={value}" for key, value in arguments.items())
    A = draw(rows, **arguments, seed=seed)
    label = f"{GENERATORS[kind]}, seed {seed}"
    return Matrix(A, label, f"dt.data.{draw.__name__}({rows}{words}, seed={seed})")


def given(A: Any) -> Matrix:
    """Take the matrix that the panel was made with."""
    name = getattr(A, "name", "")
    label = str(name) if isinstance(name, str) and name else "The matrix given to the panel"
    return Matrix(as_csr(A), label, "A", "A is the matrix that the panel was given")


def read_upload(name: str, content: bytes) -> Matrix:
    """Read an uploaded file by its name's ending.

    Raises
    ------
    MatrixFormatError
        Naming the file as the person knows it, line and fault.
    """
    name = Path(name.replace("\\", "/")).name or "file"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        try:
            A = read_matrix(path)
        except MatrixFormatError as error:
            fault = error.fault.replace(str(path), name)
            raise MatrixFormatError(name, fault, error.line) from error
    return Matrix(A, name, f"dt.read_matrix({name!r})", f"{name} is the file that was uploaded")


def _call(kind: str, rows: int, degree: int) -> tuple[Callable[..., csr_array], dict[str, Any]]:
    """Generator and its arguments, with about ``degree`` nonzeros a row."""
    if kind == "power-law":
        return data.power_law, {"degree": degree}
    if kind == "local":
        return data.power_law, {"degree": degree, "local": max(1, rows // 64)}
    if kind == "rmat":
        return data.rmat, {"edge_factor": degree}
    if kind == "hubs":
        few = max(1, min(rows // 100, 64))
        return data.hubs, {"rows": few, "cols": few, "degree": max(1, degree // 2)}
    if kind == "banded":
        return data.banded, {"bandwidth": max(1, degree // 2)}
    return data.uniform, {"degree": degree}
