"""Instructions that Numba has no name for."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils

__all__ = ["LANES", "fetch_row", "next_bit", "winners"]

types: Any = numba.types  # these two lack the type hints that mypy would need
intrinsic: Any = numba.extending.intrinsic

LANES = 16  # vectors side by side; LLVM splits them into what the processor has

_INDEX, _FLOAT, _BYTE = ir.IntType(64), ir.FloatType(), ir.IntType(8)


@intrinsic
def next_bit(typing_context, word):
    """Place of the lowest bit that is set, as int64; `word` is uint64 and not 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def fetch_row(typing_context, rows, row):
    """Ask for a row of a float32 array, C order: no processor guesses which active one is next."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        flag, byte = ir.IntType(32), _BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        width = builder.mul(builder.extract_value(array.shape, 1), _INDEX(4))
        start = builder.add(builder.ptrtoint(array.data, _INDEX), builder.mul(arguments[1], width))
        steps = cgutils.for_range_slice(builder, _INDEX(0), width, _INDEX(64), inc=True)
        with steps as (offset, _):
            place = builder.inttoptr(builder.add(start, offset), byte)
            builder.call(prefetch, [place, flag(0), flag(3), flag(1)])  # read, keep, data
        return context.get_dummy_value()

    return types.void(rows, types.int64), generate


@intrinsic
def winners(typing_context, block, places, found, number):
    """Write into ``found[number]`` which of the features of a bin is the largest, for all lanes.

    Parameters
    ----------
    block : float32 array (features, LANES)
        Minus infinity is no feature.
    places : int32 array (bins, 8)
    found : int8 array (bins, LANES)
        0 to 7, the first of equal ones; -1 where there is no feature.
    number : int
        Of the bin.
    """

    def generate(context, builder, signature, arguments):
        features, bins, out = (
            context.make_array(signature.args[i])(context, builder, arguments[i]).data
            for i in range(3)
        )
        number, many = arguments[3], ir.VectorType(_FLOAT, LANES)
        best = at = None
        for turn in range(8):
            offset = builder.add(builder.mul(number, _INDEX(8)), _INDEX(turn))
            place = builder.sext(builder.load(builder.gep(bins, [offset])), _INDEX)
            source = builder.gep(features, [builder.mul(place, _INDEX(LANES))])
            value = builder.load(builder.bitcast(source, many.as_pointer()), align=4)
            here = _all(_BYTE, turn)
            if best is None:
                best, at = value, here
            else:
                wins = builder.fcmp_ordered(">", value, best)
                best, at = builder.select(wins, value, best), builder.select(wins, here, at)
        empty = builder.fcmp_ordered("==", best, _all(_FLOAT, -math.inf))
        at = builder.select(empty, _all(_BYTE, -1), at)
        target = builder.gep(out, [builder.mul(number, _INDEX(LANES))])
        pointer = builder.bitcast(target, ir.VectorType(_BYTE, LANES).as_pointer())
        builder.store(at, pointer, align=1)
        return context.get_dummy_value()

    return types.void(block, places, found, types.int64), generate


def _all(kind: ir.Type, value: float) -> ir.Constant:
    return ir.Constant(ir.VectorType(kind, LANES), [kind(value)] * LANES)
