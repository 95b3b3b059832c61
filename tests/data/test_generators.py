"""Generators: volumes of the papers' table, structure, determinism, arguments."""

from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.data import banded, block_model, hubs, power_law, radix_net, rmat, uniform
from dtoolkit.data.dataset import content_hash

CALLS = {
    "rmat": lambda **k: rmat(512, 8, **k),
    "rmat, no power of two": lambda **k: rmat(700, 8, **k),
    "uniform": lambda **k: uniform(500, 8, **k),
    "hubs": lambda **k: hubs(500, 5, 7, **k),
    "banded": lambda **k: banded(300, 4, density=0.5, **k),
    "power_law": lambda **k: power_law(500, 8, **k),
    "power_law, local": lambda **k: power_law(500, 8, local=20, **k),
    "block_model": lambda **k: block_model([100, 50], (0.2, 0.01), **k),
    "radix_net": lambda **k: radix_net((4, 8), **k)[1],
}

# The structure that seed 7 gives on every machine (values are ones).
HASHES = {
    "rmat": "c111a2663265fc15af8411cc6459fa21",
    "rmat, no power of two": "0145ab7a5a273792777a6ba534f70758",
    "uniform": "73aa4370a7ba0879422df9fe5d85136c",
    "hubs": "dbec5473d52560f25a32ce87390cba86",
    "banded": "1367831c927a24e8cdd89b7b6d8683b2",
    "power_law": "17cda896f9de5dad35d9973f5fb7fcb4",
    "power_law, local": "669a391b5e44fda36fd36c92c19c6789",
    "block_model": "5724f6cfbe030ee82a29928d35a42b07",
    "radix_net": "68318080b14c9d676fbb38ebaee95835",
}


def column_volume(A, parts):
    """Rows of B that move: distinct foreign columns of each block row."""
    edges = [part[0] for part in np.array_split(np.arange(A.shape[0]), parts)] + [A.shape[0]]
    moved = 0
    for p in range(parts):
        columns = np.unique(A.indices[A.indptr[edges[p]] : A.indptr[edges[p + 1]]])
        moved += len(columns) - np.sum((columns >= edges[p]) & (columns < edges[p + 1]))
    return int(moved)


@pytest.mark.parametrize("seed", [0, 1])
def test_volumes_of_the_table(seed):
    assert column_volume(rmat(16384, 16, seed=seed), 16) == pytest.approx(62015, rel=0.02)
    assert column_volume(uniform(16384, 16, seed=seed), 16) == pytest.approx(155653, rel=0.02)
    assert column_volume(hubs(16384, 64, 64, seed=seed), 16) == pytest.approx(93438, rel=0.04)


def test_volumes_of_the_two_power_laws():
    scattered = power_law(200_000, 16, seed=0)
    local = power_law(200_000, 16, seed=0, local=2000)
    assert column_volume(scattered, 4) == pytest.approx(554263, rel=0.01)
    assert column_volume(local, 4) == pytest.approx(177394, rel=0.02)
    assert scattered.nnz == pytest.approx(3.2e6, rel=0.01)


@pytest.mark.parametrize("name", CALLS)
def test_canonical_and_the_same_again(name):
    A, again, other = (CALLS[name](seed=s) for s in (7, 7, 8))
    assert A.dtype == np.float32
    assert A.indices.dtype == A.indptr.dtype == np.int32
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    assert (np.diff(rows * A.shape[1] + A.indices) > 0).all()
    assert (A.data == 1).all()
    assert content_hash(A) == content_hash(again)
    assert content_hash(A) != content_hash(other)
    assert content_hash(A) == HASHES[name]


@pytest.mark.parametrize("name", CALLS)
def test_values_leave_the_structure_alone(name):
    A = CALLS[name](seed=7)
    for values in ("normal", "uniform"):
        B = CALLS[name](seed=7, values=values, dtype=np.float64)
        np.testing.assert_array_equal(A.indices, B.indices)
        assert B.dtype == np.float64
        assert B.data.std() > 0.2
    assert B.data.min() >= 0
    assert B.data.max() < 1


def test_rmat_structure():
    A = rmat(1024, 16, seed=0, permute=False)
    half = A[:512, :512].nnz / A.nnz
    assert 0.4 < half < 0.57  # .57 before duplicates, which are most frequent there, collapse
    degrees = np.sort(np.diff(rmat(1024, 16, seed=0).indptr))
    assert degrees[-1] > 8 * np.median(degrees)
    assert rmat(1, 4, seed=0).toarray().tolist() == [[1]]
    assert rmat(5, 0, seed=0).nnz == 0
    assert rmat(64, 4, seed=0, probabilities=(0, 0, 0, 1), permute=False)[63, 63] == 1


def test_hubs_structure():
    A = hubs(1000, 3, 5, seed=0)
    assert (np.diff(A.indptr) > 500).sum() == 3
    assert (np.diff(A.tocsc().indptr) > 500).sum() == 5
    assert hubs(100, 0, 0, seed=0).nnz == 0
    assert (np.diff(hubs(1000, 0, 2, seed=0).tocsc().indptr) > 0).sum() == 2


def test_banded_structure():
    A = banded(50, 3, seed=0)
    assert A.nnz == 50 * 7 - 2 * (3 + 2 + 1)
    rows = np.repeat(np.arange(50), np.diff(A.indptr))
    assert np.abs(rows - A.indices).max() == 3
    assert (banded(50, 0, seed=0).toarray() == np.eye(50)).all()
    assert banded(3, 99, seed=0).nnz == 9
    sparse_band = banded(1000, 5, seed=0, density=0.3)
    assert sparse_band.diagonal().all()
    assert (sparse_band.nnz - 1000) / 9970 == pytest.approx(0.3, abs=0.03)


def test_power_law_structure():
    A = power_law(4000, 16, seed=0, local=100)
    rows = np.repeat(np.arange(4000), np.diff(A.indptr))
    assert np.mean(np.abs(rows - A.indices) <= 100) == pytest.approx(0.9, abs=0.02)
    flat = np.bincount(power_law(4000, 16, seed=0, exponent=0).indices)
    hubby = np.bincount(power_law(4000, 16, seed=0, exponent=0.8).indices)
    assert hubby.max() > 5 * flat.max()


def test_block_model_structure():
    A = block_model([300, 200], (0.1, 0.01), seed=0, values="normal")
    assert abs(A - A.T).max() == 0
    assert not A.diagonal().any()
    assert A[:300, :300].nnz / (300 * 299) == pytest.approx(0.1, rel=0.1)
    assert A[:300, 300:].nnz / (300 * 200) == pytest.approx(0.01, rel=0.2)
    directed = block_model([40, 60], [[0, 1], [0, 0.5]], seed=0, directed=True)
    assert directed[:40, 40:].nnz == 2400
    assert directed[:, :40].nnz == 0
    hidden = block_model([40, 60], [[1, 0], [0, 1]], seed=0, permute=True)
    assert sorted(np.diff(hidden.indptr)) == [39] * 40 + [59] * 60
    assert block_model([0, 3], (1, 1), seed=0).nnz == 6


def test_radix_net_reaches_every_output_equally():
    layers = radix_net((2, 3, 4), seed=0, systems=2)
    assert [layer.shape for layer in layers] == [(24, 24)] * 6
    for layer, radix in zip(layers, (2, 3, 4) * 2, strict=True):
        assert (layer.sum(axis=0) == radix).all()
        assert (layer.sum(axis=1) == radix).all()
    one = layers[0] @ layers[1] @ layers[2]
    assert (one.toarray() == 1).all()
    wide = radix_net((2, 3), seed=0, widths=(1, 2, 3))
    assert [layer.shape for layer in wide] == [(6, 12), (12, 18)]
    assert (wide[0] @ wide[1]).toarray().min() == (wide[0] @ wide[1]).toarray().max() == 2
    challenge = radix_net((32, 32), seed=0)
    assert all((np.diff(layer.indptr) == 32).all() for layer in challenge)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: rmat(0, 4, seed=0), ValueError, "n=0"),
        (lambda: rmat(10.0, 4, seed=0), TypeError, "n=10.0"),
        (lambda: rmat(8, -1, seed=0), ValueError, "edge_factor=-1"),
        (lambda: rmat(8, 1, seed=-1), ValueError, "seed=-1"),
        (lambda: rmat(8, 1, seed=None), TypeError, "seed=None"),
        (lambda: rmat(8, 1, seed=0, probabilities=(1, 1, 0, 0)), ValueError, "sum to 1"),
        (lambda: rmat(9, 1, seed=0, probabilities=(0, 0, 0, 1)), ValueError, "no power of two"),
        (lambda: uniform(4, True, seed=0), TypeError, "degree=True"),
        (lambda: uniform(4, 2, seed=0, values="twos"), ValueError, "values='twos'"),
        (lambda: uniform(4, 2, seed=0, dtype=np.int32), TypeError, "float32"),
        (lambda: hubs(4, 5, 1, seed=0), ValueError, "rows=5"),
        (lambda: banded(4, 1, seed=0, density=1.5), ValueError, "density=1.5"),
        (lambda: power_law(4, 1, seed=0, exponent=-1), ValueError, "exponent=-1"),
        (lambda: power_law(4, 1, seed=0, local=-1), ValueError, "local=-1"),
        (lambda: block_model([], (0, 0), seed=0), ValueError, "sizes is empty"),
        (lambda: block_model([2, 2], [[0, 1], [0, 0]], seed=0), ValueError, "not symmetric"),
        (lambda: block_model([2, 2], (0, 2), seed=0), ValueError, "from 0 to 1"),
        (lambda: block_model([2, 2], [0.5], seed=0), ValueError, r"shape \(1,\)"),
        (lambda: radix_net((), seed=0), ValueError, "radices is empty"),
        (lambda: radix_net((2, 0), seed=0), ValueError, "radices=0"),
        (lambda: radix_net((2, 2), seed=0, widths=(1, 1)), ValueError, "want 3"),
    ],
)
def test_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()
