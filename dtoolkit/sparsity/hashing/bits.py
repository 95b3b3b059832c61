"""One instruction that Numba has no name for."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir

__all__ = ["next_bit"]

types: Any = numba.types  # these two lack the type hints that mypy would need
intrinsic: Any = numba.extending.intrinsic


@intrinsic
def next_bit(typing_context, word):
    """Place of the lowest bit that is set, as int64; `word` is uint64 and not 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate
