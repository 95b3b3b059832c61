"""The compiled local product: CSR times dense rows, with a block of an output row in registers.

Plain Numba loops load and store the output row once per nonzero, and LLVM cannot know that it need
not. Here a block of up to :data:`WIDE` bytes of an output row is one LLVM vector value, which
stays in registers over all nonzeros of the row; LLVM splits it into what the processor has
(AVX-512, AVX2, SSE, NEON). Rows of ``B`` that come soon are prefetched, because no processor
guesses where the next column index points.

Additions happen one nonzero after another in the order of storage, each product rounded before it
is added (no fused multiply-add, no ``fastmath``): the order of SciPy's CSR product, so that
results are the same bit for bit where SciPy was compiled without contraction (x86-64 wheels).

Functions take addresses and row strides in elements instead of arrays, so that there is one
signature per dtype and index width, whatever the layout of the dense operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding, ir
from numba.core import cgutils
from numba.extending import models, register_model

types: Any = numba.types  # these two lack the type hints that mypy would need
intrinsic: Any = numba.extending.intrinsic

__all__ = ["WIDE", "add_rows", "csr_times_dense"]

#: Widest block of an output row that is kept in registers, in bytes: half of the 32 registers of
#: AVX-512 or NEON would be 1024 or 256; AVX2 has 16 of 32 bytes.
WIDE = 512 if binding.get_host_cpu_features().get("avx512f", False) else 256

#: Nonzeros between the one that is multiplied and the one whose row of B is fetched.
AHEAD = 16

CACHE_LINE = 64


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the GIL, cached on disk where a folder can be written."""
    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # Numba found no folder for its cache: compile in each process
        return numba.njit(**options)(function)


class Lanes(types.Type):
    """Numba type of `width` neighbouring elements of `dtype`, held as one LLVM vector."""

    def __init__(self, dtype: Any, width: int) -> None:
        self.dtype, self.width = dtype, width
        super().__init__(name=f"Lanes({dtype}, {width})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """Complex lanes are stored as re, im, re, im: twice as many real ones."""

    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        complex_ = isinstance(fe_type.dtype, types.Complex)
        real = fe_type.dtype.underlying_float if complex_ else fe_type.dtype
        scalar = ir.FloatType() if real == types.float32 else ir.DoubleType()
        super().__init__(
            dmm, fe_type, ir.VectorType(scalar, fe_type.width * (2 if complex_ else 1))
        )


def _lanes(array: Any, nbytes: Any) -> Lanes:
    """As many elements of the array's dtype as fit `nbytes`, and at least one."""
    return Lanes(array.dtype, max(1, nbytes.literal_value * 8 // array.dtype.bitwidth))


@intrinsic(prefer_literal=True)
def load(typing_context, address, like, nbytes):  # type: ignore[no-untyped-def]
    """Read `nbytes` of elements of ``like.dtype`` at an address."""
    lanes = _lanes(like, nbytes)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        vector = context.get_value_type(lanes)
        pointer = builder.inttoptr(arguments[0], vector.as_pointer())
        return builder.load(pointer, align=_alignment(vector))

    return lanes(address, like, nbytes), generate


@intrinsic(prefer_literal=True)
def zeros(typing_context, like, nbytes):  # type: ignore[no-untyped-def]
    """Lanes of +0."""
    lanes = _lanes(like, nbytes)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return ir.Constant(context.get_value_type(lanes), None)

    return lanes(like, nbytes), generate


@intrinsic
def store(typing_context, address, lanes):  # type: ignore[no-untyped-def]
    """Write lanes at an address."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        vector = arguments[1].type
        pointer = builder.inttoptr(arguments[0], vector.as_pointer())
        builder.store(arguments[1], pointer, align=_alignment(vector))
        return context.get_dummy_value()

    return types.void(address, lanes), generate


@intrinsic
def add(typing_context, left, right):  # type: ignore[no-untyped-def]
    """Sum of two vectors, lane by lane."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.fadd(arguments[0], arguments[1])

    return left(left, right), generate


@intrinsic
def add_product(typing_context, total, factor, lanes):  # type: ignore[no-untyped-def]
    """``total + factor * lanes``, the product rounded before it is added."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        total, factor, lanes = arguments
        if not isinstance(signature.args[1], types.Complex):
            product = builder.fmul(_spread(builder, [factor], lanes.type), lanes)
            return builder.fadd(total, product)
        # (a + bi)(x + yi) = (ax - by) + (ay + bx)i, lanes (x, y): a(x, y) + (-b, b)(y, x)
        number = context.make_complex(builder, signature.args[1], value=factor)
        swapped = builder.shuffle_vector(
            lanes, lanes, _mask([i ^ 1 for i in range(lanes.type.count)])
        )
        turned = _spread(builder, [builder.fneg(number.imag), number.imag], lanes.type)
        product = builder.fadd(
            builder.fmul(_spread(builder, [number.real], lanes.type), lanes),
            builder.fmul(turned, swapped),
        )
        return builder.fadd(total, product)

    return total(total, factor, lanes), generate


@intrinsic
def prefetch(typing_context, address):  # type: ignore[no-untyped-def]
    """Ask for the cache line at an address; an address that is not mapped does no harm."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(address), generate


def _alignment(vector: ir.VectorType) -> int:
    return 4 if isinstance(vector.element, ir.FloatType) else 8


def _mask(lanes: list[int]) -> ir.Constant:
    i32 = ir.IntType(32)
    return ir.Constant(ir.VectorType(i32, len(lanes)), [i32(lane) for lane in lanes])


def _spread(builder: ir.IRBuilder, scalars: list[ir.Value], vector: ir.VectorType) -> ir.Value:
    """Repeat one or two scalars over all lanes."""
    undefined = ir.Constant(vector, ir.Undefined)
    value = undefined
    for place, scalar in enumerate(scalars):
        value = builder.insert_element(value, scalar, ir.IntType(32)(place))
    return builder.shuffle_vector(
        value, undefined, _mask([lane % len(scalars) for lane in range(vector.count)])
    )


def _row_block(nbytes: int) -> Callable[..., Any]:
    """Make the function that computes `nbytes` of one output row."""
    lines = max(1, nbytes // CACHE_LINE)

    @compiled
    def row_block(first, last, end, indices, data, source, pitch, target, accumulate):  # type: ignore[no-untyped-def]
        total = load(target, data, nbytes) if accumulate else zeros(data, nbytes)
        for p in range(first, last):
            soon = source + numba.int64(indices[min(p + AHEAD, end)]) * pitch
            for line in range(lines):
                prefetch(soon + line * CACHE_LINE)
            total = add_product(
                total, data[p], load(source + numba.int64(indices[p]) * pitch, data, nbytes)
            )
        store(target, total)

    return row_block


_blocks = [_row_block(nbytes) for nbytes in (512, 256, 128, 64, 32, 16, 1)]
_block_512, _block_256, _block_128, _block_64, _block_32, _block_16, _block_one = _blocks


@compiled
def csr_times_dense(indptr, indices, data, B, B_pitch, C, C_pitch, width, accumulate):  # type: ignore[no-untyped-def]
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
    accumulate : bool
        Start from what C holds instead of from 0.
    """
    end = indices.size - 1
    item = data.itemsize
    for row in range(indptr.size - 1):
        first, last = indptr[row], indptr[row + 1]
        at = 0
        target = C + row * C_pitch
        if WIDE == 512:
            while width - at >= 512:
                _block_512(
                    first, last, end, indices, data, B + at, B_pitch, target + at, accumulate
                )
                at += 512
        while width - at >= 256:
            _block_256(first, last, end, indices, data, B + at, B_pitch, target + at, accumulate)
            at += 256
        if width - at >= 128:
            _block_128(first, last, end, indices, data, B + at, B_pitch, target + at, accumulate)
            at += 128
        if width - at >= 64:
            _block_64(first, last, end, indices, data, B + at, B_pitch, target + at, accumulate)
            at += 64
        if width - at >= 32:
            _block_32(first, last, end, indices, data, B + at, B_pitch, target + at, accumulate)
            at += 32
        if width - at >= 16:
            _block_16(first, last, end, indices, data, B + at, B_pitch, target + at, accumulate)
            at += 16
        while at < width:
            _block_one(first, last, end, indices, data, B + at, B_pitch, target + at, accumulate)
            at += item


@compiled
def add_rows(index, like, rows, rows_pitch, C, C_pitch, width):  # type: ignore[no-untyped-def]
    """``C[index] += rows``, for addresses, pitches and width as in :func:`csr_times_dense`."""
    item = like.itemsize
    for i in range(index.size):
        source = rows + i * rows_pitch
        target = C + index[i] * C_pitch
        at = 0
        while width - at >= 64:
            store(target + at, add(load(target + at, like, 64), load(source + at, like, 64)))
            at += 64
        while at < width:
            store(target + at, add(load(target + at, like, 1), load(source + at, like, 1)))
            at += item
