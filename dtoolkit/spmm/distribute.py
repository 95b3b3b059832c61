"""From a matrix or an array in one process to a distributed one."""

from __future__ import annotations

from typing import Any

import torch
from scipy import sparse

from dtoolkit.arrays.array import DistArray, check_memory
from dtoolkit.arrays.dask_io import from_dask, is_dask, known_shape
from dtoolkit.arrays.dense import DistDense, distribute_dense, to_tensor
from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.arrays.lineage import remember
from dtoolkit.arrays.sparse import DistSparse
from dtoolkit.cluster import Cluster, Remote
from dtoolkit.data import Dataset, as_csr
from dtoolkit.errors import LayoutError, PlanError
from dtoolkit.spmm.building import build
from dtoolkit.spmm.operand import Operand
from dtoolkit.spmm.plan import plan as make_plan
from dtoolkit.spmm.planned import Plan

__all__ = ["distribute"]


def distribute(
    cluster: Cluster, x: Any, plan: Plan | Layout | str | None = None
) -> DistSparse | DistDense:
    """Lay a matrix or an array over the workers of a cluster.

    Parameters
    ----------
    cluster : Cluster
    x : sparse matrix, or dense array of 1 or 2 dimensions
        Sparse: anything that ``read_matrix`` takes as an object. Dense: NumPy, torch, or what
        NumPy makes an array of. Integers and booleans become floating-point numbers as
        :func:`dtoolkit.data.working_dtype` says. A Dask array stays on the workers, its chunks move
        between them; one of sparse chunks comes to the client first, which plans for it.
    plan : Plan, Layout or str, optional
        For a sparse matrix its plan; by default a joint plan over block rows, and with a layout a
        joint plan on it. For a dense array its layout (``"block"``, ``"cyclic"``, ...); with a plan
        the array is laid out as a right operand of the planned matrix, as the rows of B. By
        default blocks.

    Returns
    -------
    DistSparse or DistDense

    Raises
    ------
    PlanError
        The plan belongs to another matrix, or to another number of ranks.
    LayoutError
        The layout does not fit the array or the cluster.
    MemoryError
        A rank would need more than its worker's limit.
    """
    size = cluster.size
    if isinstance(plan, Plan) and plan.parts != size:
        raise PlanError(f"plan is for {plan.parts} parts and the cluster has {size} ranks")
    if isinstance(x, DistArray):
        raise TypeError("x is distributed already: use x.redistribute(layout)")
    if _is_sparse(x):
        return _sparse(cluster, x, plan, size)
    if is_dask(x):
        return from_dask(cluster, x, _layout(plan, known_shape(x), size))
    tensor = to_tensor(x)
    if tensor.dim() not in (1, 2):
        raise ValueError(f"x has {tensor.dim()} dimensions; wanted a vector or a matrix")
    return distribute_dense(cluster, tensor, _layout(plan, tuple(tensor.shape), size))


def _layout(plan: Plan | Layout | str | None, shape: tuple[int, ...], size: int) -> Layout:
    """Layout of a dense array."""
    if isinstance(plan, Plan):
        if shape[0] != plan.shape[1]:
            raise LayoutError(
                f"x has {shape[0]} rows; the planned matrix has {plan.shape[1]} columns, and a "
                "right operand needs as many rows. For an array laid out as the result, pass "
                "plan.rows"
            )
        return plan.columns
    return as_layout("block" if plan is None else plan, shape[0], size, name="plan")


def _sparse(cluster: Cluster, x: Any, plan: Plan | Layout | str | None, size: int) -> DistSparse:
    A = as_csr(x)
    if not isinstance(plan, Plan):
        plan = make_plan(A, parts=size, partition="block" if plan is None else plan)
    plan.require(A)
    check_memory(cluster, list(plan.memory(1, A.dtype)), f"a {A.shape[0]} x {A.shape[1]} matrix")
    remote = cluster.keep(_place, per_rank=[(operand,) for operand in build(plan, A)])

    def again(into: Remote, _: list[int]) -> None:
        cluster.keep(_place, per_rank=[(o,) for o in build(plan, A)], into=into)

    dtype = torch.from_numpy(A.data[:0]).dtype
    return DistSparse(cluster, plan, dtype, remember(remote, again))


def _is_sparse(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return x.layout != torch.strided
    if is_dask(x):
        return sparse.issparse(x._meta)
    # Data sets, and graphs of networkx, which need not be installed.
    graph = hasattr(x, "adjacency") and hasattr(x, "nodes")
    return sparse.issparse(x) or isinstance(x, Dataset) or graph


def _place(ctx: Any, operand: Operand) -> Operand:
    return operand.to(ctx.device)
