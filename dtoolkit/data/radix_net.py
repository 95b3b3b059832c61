"""RadiX-Net: layers of sparse networks in which every input reaches every output equally."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from dtoolkit.data.sampling import Values, check_count, from_pairs, streams

__all__ = ["radix_net"]


def radix_net(
    radices: Sequence[int],
    *,
    seed: int,
    systems: int = 1,
    widths: Sequence[int] | None = None,
    permute: bool = True,
    values: Values = "ones",
    dtype: DTypeLike = np.float32,
) -> list[csr_array]:
    """Layers of a RadiX-Net, the topology of the Sparse Deep Neural Network Graph Challenge.

    The radices (N1, ..., Nd) are those of a mixed-radix number system with N = N1 * ... * Nd
    numbers. Layer i joins neuron x to the Ni neurons x + s * (N1 * ... * N(i-1)) mod N,
    s = 0 ... Ni - 1: it chooses digit i. After one system, every input has exactly one path to
    every output. Row = neuron that the edge leaves, so that ``Y @ layer`` is the next layer of
    activations Y (samples, neurons).

    ``radix_net((32, 32), systems=60, seed=0)`` has the shape of the Challenge's network of 1,024
    neurons and 120 layers, with 32 edges a neuron; the Challenge gives each the value 1/16.

    Parameters
    ----------
    radices : sequence of int
        Radices of the number system, each at least 1.
    seed : int
        Same seed, same layers.
    systems : int, optional
        How often the system is repeated: there are ``systems * len(radices)`` layers.
    widths : sequence of int, optional
        One more than there are layers: how many copies of the N neurons each layer of neurons
        has, all copies joined to all (the Kronecker product of the method). By default one each.
    permute : bool, optional
        Renumber the neurons of every layer by a random permutation, as the Challenge does.
    values, dtype
        As for the other generators: "ones", "normal" or "uniform"; float32 or float64.

    Returns
    -------
    list of scipy.sparse.csr_array
        Layer i has shape (widths[i] * N, widths[i + 1] * N).

    Raises
    ------
    TypeError, ValueError
        If an argument is out of its range, named in the error.

    References
    ----------
    Kepner and Robinett, "RadiX-Net: Structured Sparse Matrices for Deep Neural Networks",
    IPDPSW 2019, arXiv 1905.00416.
    """
    digits = [check_count("radices", radix, least=1) for radix in radices]
    if not digits:
        raise ValueError("radices is empty: want at least one")
    layers = digits * check_count("systems", systems, least=1)
    copies = [1] * (len(layers) + 1) if widths is None else list(widths)
    for width in copies:
        check_count("widths", width, least=1)
    if len(copies) != len(layers) + 1:
        raise ValueError(f"widths has {len(copies)} entries: want {len(layers) + 1}")
    n = math.prod(digits)
    rng, value_rng = streams(seed)
    numbers = [rng.permutation(w * n) if permute else np.arange(w * n) for w in copies]
    network = []
    for i, radix in enumerate(layers):
        step = math.prod(digits[: i % len(digits)])
        rows, columns = _layer(n, radix, step, copies[i], copies[i + 1])
        network.append(
            from_pairs(
                numbers[i][rows],
                numbers[i + 1][columns],
                (copies[i] * n, copies[i + 1] * n),
                values=values,
                rng=value_rng,
                dtype=dtype,
            )
        )
    return network


def _layer(n: int, radix: int, step: int, sources: int, targets: int) -> tuple[NDArray, NDArray]:
    neuron = np.arange(n)[None, None, :, None]
    source = np.arange(sources)[:, None, None, None] * n
    target = np.arange(targets)[None, :, None, None] * n
    shift = np.arange(radix)[None, None, None, :] * step
    full = (sources, targets, n, radix)
    rows = np.broadcast_to(source + neuron, full)
    columns = np.broadcast_to(target + (neuron + shift) % n, full)
    return rows.ravel(), columns.ravel()
