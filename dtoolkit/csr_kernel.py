"""The compiled product: CSR times dense rows, with a block of an output row in registers.

Plain Numba loops load and store the output row once per nonzero, because LLVM cannot know that it
need not. Here a block of an output row is one LLVM vector value, up to :data:`WIDE` bytes, which
stays in registers over all nonzeros of the row; LLVM splits it into what the processor has
(AVX-512, AVX2, SSE, NEON). Rows of B that come soon are prefetched, because no processor guesses
where the next column index points.

Additions happen one nonzero after another in the order of storage, each product rounded before it
is added (no fused multiply-add, no ``fastmath``): the order of SciPy's CSR product, so that
results are the same bit for bit where SciPy was compiled without contraction (x86-64).

Functions take addresses and pitches instead of arrays for the dense operands, so that there is one
signature for a dtype and an index width, whatever the layout. The inner loops are emitted by
intrinsics rather than compiled from Python: 7 widths take 0.3 s instead of 1.4 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numba
from llvmlite import binding, ir
from numba.core import cgutils

types: Any = numba.types  # these two lack the type hints that mypy would need
intrinsic: Any = numba.extending.intrinsic

__all__ = ["AHEAD", "WIDE", "add_rows", "compiled", "csr_times_dense"]

#: Widest block of an output row that is kept in registers, in bytes. AVX-512 has 32 registers of
#: 64 bytes, AVX2 16 of 32, NEON 32 of 16; operands need some of them.
WIDE = 512 if binding.get_host_cpu_features().get("avx512f", False) else 256

#: Nonzeros between the one that is multiplied and the one whose row of B is fetched, and at most so
#: many bytes: more would drive out of the first cache (32 KiB and up) what was fetched before.
AHEAD = 64
AHEAD_BYTES = 16384

CACHE_LINE = 64
INDEX = ir.IntType(64)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the GIL, cached on disk where a folder can be written."""
    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # Numba found no folder for its cache: compile in each process
        return numba.njit(**options)(function)


@intrinsic(prefer_literal=True)
def strip(  # type: ignore[no-untyped-def]
    typing_context, indptr, start, stop, indices, data, source, pitch, target, step, add, nbytes
):
    """Compute rows `start` to `stop` of a strip of C that is `nbytes` wide."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        start, stop, source, pitch, target, step, add = (
            arguments[i] for i in (1, 2, 5, 6, 7, 8, 9)
        )
        indptr, indices, data = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 3, 4)
        )
        dtype, width = signature.args[4].dtype, nbytes.literal_value
        vector = _vector(dtype, width)
        ahead = INDEX(min(AHEAD, max(1, AHEAD_BYTES // width)))
        end = builder.sub(builder.extract_value(indices.shape, 0), INDEX(1))

        def address(entry: ir.Value) -> ir.Value:
            column = builder.sext(builder.load(builder.gep(indices.data, [entry])), INDEX)
            return builder.add(source, builder.mul(column, pitch))

        total = cgutils.alloca_once(builder, vector)
        zero = ir.Constant(vector, None)
        with cgutils.for_range_slice(builder, start, stop, INDEX(1), inc=True) as (row, _):
            place = builder.add(target, builder.mul(row, step))
            builder.store(builder.select(add, _load(builder, place, vector), zero), total)
            first = builder.load(builder.gep(indptr.data, [row]))
            last = builder.load(builder.gep(indptr.data, [builder.add(row, INDEX(1))]))
            with cgutils.for_range_slice(builder, first, last, INDEX(1), inc=True) as (entry, _):
                soon = builder.add(entry, ahead)
                soon = builder.select(builder.icmp_signed("<", soon, end), soon, end)
                _prefetch(builder, address(soon), width)
                lanes = _load(builder, address(entry), vector)
                product = _product(builder, dtype, builder.gep(data.data, [entry]), lanes)
                builder.store(builder.fadd(builder.load(total), product), total)
            _store(builder, place, builder.load(total))
        return context.get_dummy_value()

    whole = types.int64
    kinds = (indptr, whole, whole, indices, data, whole, whole, whole, whole, types.boolean, nbytes)
    return types.void(*kinds), generate


@intrinsic(prefer_literal=True)
def add_block(typing_context, target, source, like, nbytes):  # type: ignore[no-untyped-def]
    """Add `nbytes` at one address to those at another, as elements of ``like.dtype``."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        target, source = arguments[:2]
        vector = _vector(signature.args[2].dtype, nbytes.literal_value)
        old, new = (_load(builder, address, vector) for address in (target, source))
        _store(builder, target, builder.fadd(old, new))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, like, nbytes), generate


@compiled
def csr_times_dense(indptr, indices, data, B, B_pitch, C, C_pitch, width, add):  # type: ignore[no-untyped-def]
    """``C = A @ B``, or ``C += A @ B``, for a CSR matrix and dense rows in memory.

    Parameters
    ----------
    indptr : int64 array (m + 1,)
        Where each row starts in `indices` and `data`; need not start at 0.
    indices : int32 or int64 array (nnz,)
        Columns; not checked.
    data : array (nnz,)
        float32, float64, complex64 or complex128; B and C are of the same dtype.
    B, C : int
        Addresses of the first elements; elements of a row are neighbours.
    B_pitch, C_pitch : int
        Bytes from one row to the next.
    width : int
        Bytes in a row of C.
    add : bool
        Start from what C holds instead of from 0.
    """
    item = data.itemsize
    rows = indptr.size - 1
    while width >= 2 * WIDE:  # a strip of all rows: what is used of B is smaller, and stays nearer
        strip(indptr, 0, rows, indices, data, B, B_pitch, C, C_pitch, add, WIDE)
        B, C, width = B + WIDE, C + WIDE, width - WIDE
    for row in range(rows):  # narrow ends are best done while the row of B is in the cache
        source, target, left = B, C, width
        while left >= WIDE:
            strip(indptr, row, row + 1, indices, data, source, B_pitch, target, C_pitch, add, WIDE)
            source, target, left = source + WIDE, target + WIDE, left - WIDE
        if left >= 256:
            strip(indptr, row, row + 1, indices, data, source, B_pitch, target, C_pitch, add, 256)
            source, target, left = source + 256, target + 256, left - 256
        if left >= 128:
            strip(indptr, row, row + 1, indices, data, source, B_pitch, target, C_pitch, add, 128)
            source, target, left = source + 128, target + 128, left - 128
        if left >= 64:
            strip(indptr, row, row + 1, indices, data, source, B_pitch, target, C_pitch, add, 64)
            source, target, left = source + 64, target + 64, left - 64
        if left >= 32:
            strip(indptr, row, row + 1, indices, data, source, B_pitch, target, C_pitch, add, 32)
            source, target, left = source + 32, target + 32, left - 32
        if left >= 16:
            strip(indptr, row, row + 1, indices, data, source, B_pitch, target, C_pitch, add, 16)
            source, target, left = source + 16, target + 16, left - 16
        while left > 0:
            strip(indptr, row, row + 1, indices, data, source, B_pitch, target, C_pitch, add, 1)
            source, target, left = source + item, target + item, left - item


@compiled
def add_rows(index, like, rows, rows_pitch, C, C_pitch, width):  # type: ignore[no-untyped-def]
    """``C[index] += rows``: addresses, pitches and width as for :func:`csr_times_dense`.

    `like` is an array of the dtype, of any length.
    """
    item = like.itemsize
    for i in range(index.size):
        source, target = rows + i * rows_pitch, C + index[i] * C_pitch
        left = width
        while left >= CACHE_LINE:
            add_block(target, source, like, CACHE_LINE)
            source, target, left = source + CACHE_LINE, target + CACHE_LINE, left - CACHE_LINE
        while left > 0:
            add_block(target, source, like, 1)
            source, target, left = source + item, target + item, left - item


def _vector(dtype: Any, nbytes: int) -> ir.VectorType:
    """Give `nbytes` of elements, at least one; complex lanes are re, im, re, im."""
    complex_ = isinstance(dtype, types.Complex)
    real = dtype.underlying_float if complex_ else dtype
    scalar = ir.FloatType() if real == types.float32 else ir.DoubleType()
    return ir.VectorType(scalar, max(2 if complex_ else 1, nbytes * 8 // real.bitwidth))


def _load(builder: ir.IRBuilder, address: ir.Value, vector: ir.VectorType) -> ir.Value:
    return builder.load(_pointer(builder, address, vector), align=_alignment(vector))


def _store(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    builder.store(value, _pointer(builder, address, value.type), align=_alignment(value.type))


def _pointer(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.inttoptr(address, kind.as_pointer())


def _alignment(vector: ir.VectorType) -> int:
    return 4 if isinstance(vector.element, ir.FloatType) else 8


def _prefetch(builder: ir.IRBuilder, address: ir.Value, nbytes: int) -> None:
    """Ask for the cache lines that hold `nbytes` from an address on.

    The last byte is asked for as well: NumPy's memory and odd pitches start within a line. One
    line that comes too late costs a third to half of the time; to ask twice costs nothing.
    """
    i32 = ir.IntType(32)
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    for offset in sorted({*range(0, nbytes, CACHE_LINE), nbytes - 1}):
        pointer = _pointer(builder, builder.add(address, INDEX(offset)), ir.IntType(8))
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])  # read, keep, data


def _product(builder: ir.IRBuilder, dtype: Any, factor: ir.Value, lanes: ir.Value) -> ir.Value:
    """Multiply lanes by the number that `factor` points at."""
    if not isinstance(dtype, types.Complex):
        return builder.fmul(_spread(builder, [builder.load(factor)], lanes.type), lanes)
    # (a + bi)(x + yi) = (ax - by) + (ay + bx)i; with lanes (x, y): a(x, y) + (-b, b)(y, x)
    re, im = (builder.load(cgutils.gep_inbounds(builder, factor, 0, part)) for part in (0, 1))
    swapped = builder.shuffle_vector(lanes, lanes, _mask(i ^ 1 for i in range(lanes.type.count)))
    straight = builder.fmul(_spread(builder, [re], lanes.type), lanes)
    crossed = builder.fmul(_spread(builder, [builder.fneg(im), im], lanes.type), swapped)
    return builder.fadd(straight, crossed)


def _spread(builder: ir.IRBuilder, scalars: list[ir.Value], vector: ir.VectorType) -> ir.Value:
    """Repeat one or two scalars over all lanes."""
    undefined = value = ir.Constant(vector, ir.Undefined)
    for place, scalar in enumerate(scalars):
        value = builder.insert_element(value, scalar, ir.IntType(32)(place))
    mask = _mask(lane % len(scalars) for lane in range(vector.count))
    return builder.shuffle_vector(value, undefined, mask)


def _mask(lanes: Iterable[int]) -> ir.Constant:
    i32 = ir.IntType(32)
    chosen = [i32(lane) for lane in lanes]
    return ir.Constant(ir.VectorType(i32, len(chosen)), chosen)
