"""Hash functions against plain reckoning: the same codes for dense, sparse, and torch's own way."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
import torch

from dtoolkit.sparsity.hashing import DWTA, FAMILIES, SimHash, make_family

SIZES = {"dwta": (5, 3), "simhash": (5, 7)}


def vectors(rows: int, features: int, share: float, seed: int = 0) -> torch.Tensor:
    """Numbers of both signs, a share of them not zero, some of them equal; one row of zeros."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(rows, features, generator=generator)
    made = torch.round(made * 4) / 4 * (torch.rand(made.shape, generator=generator) < share)
    made[rows // 2] = 0
    return made


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("share", [1.0, 0.3, 0.04])
def test_sparse_and_dense_input_have_the_same_codes(family, share):
    tables, hashes = SIZES[family]
    hashing = make_family(family, 37, tables=tables, hashes=hashes, seed=2)
    dense = vectors(53, 37, share)
    codes = hashing.codes(dense)
    assert codes.shape == (tables, 53)
    assert codes.dtype == torch.int32
    stored = scipy.sparse.csr_array(dense.numpy())
    with_zeros = scipy.sparse.coo_array(np.ones((53, 37), np.float32)).tocsr()
    with_zeros.data = dense.numpy().ravel().copy()  # every zero is stored
    assert with_zeros.nnz > stored.nnz
    for same in (stored, with_zeros, dense.to_sparse(), dense.numpy(), dense.double()):
        assert torch.equal(hashing.codes(same), codes)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_codes_do_not_depend_on_the_batch(family):
    hashing = make_family(family, 64, tables=6, hashes=SIZES[family][1])
    rows = vectors(100, 64, 0.5)
    codes = hashing.codes(rows)
    apart = torch.cat([hashing.codes(rows[a:b]) for a, b in ((0, 1), (1, 34), (34, 100))], dim=1)
    assert torch.equal(apart, codes)
    assert torch.equal(hashing.codes(rows * 2.0**-100), codes)  # direction is all that counts
    assert hashing.codes(rows[:0]).shape == (6, 0)


def test_dwta_is_the_place_of_the_largest_and_borrows_where_a_bin_is_empty():
    hashing = DWTA(21, tables=4, hashes=3, seed=1)
    rows = vectors(60, 21, 0.15, seed=3)
    borrowed = 0
    for row, got in zip(rows.numpy(), hashing.values(rows).permute(2, 0, 1), strict=True):
        own = [_winner(row, bin_) for bin_ in hashing.places.tolist()]
        wanted = []
        for place, (start, stride) in zip(own, hashing.donors.tolist(), strict=True):
            turn = 0
            while place is None and turn < len(own):
                place = own[(start + turn * stride) % len(own)]
                turn += 1
            borrowed += turn > 0
            wanted.append(place or 0)
        assert got.reshape(-1).tolist() == wanted
    assert borrowed > 200


def test_dwta_looks_at_every_bin_before_it_gives_up():
    hashing = DWTA(24, tables=5, hashes=3, seed=4)
    for start, stride in hashing.donors.tolist():
        assert {(start + turn * stride) % 15 for turn in range(15)} == set(range(15))
    alone = torch.zeros(1, 24)
    alone[0, 5] = -2.0  # one feature: whichever bins it is in, all others borrow from them
    places = hashing.places
    within = {int(place) for place in (places == 5).nonzero()[:, 1]}
    assert set(hashing.values(alone).unique().tolist()) == within
    assert hashing.values(torch.zeros(1, 24)).abs().max() == 0


def test_bins_are_cuts_of_permutations():
    hashing = DWTA(27, tables=2, hashes=6, seed=0)
    bins = hashing.places.view(4, 3, 8)
    for permutation in bins.view(4, 24).tolist():
        assert len(set(permutation)) == 24
        assert set(permutation) <= set(range(27))
    assert len({tuple(one) for one in hashing.places.tolist()}) == 12


def test_dwta_by_torch_is_the_same():
    hashing = DWTA(40, tables=7, hashes=10, seed=5)
    for share in (1.0, 0.2, 0.02):
        rows = vectors(70, 40, share)
        assert torch.equal(hashing.codes_in_torch(rows), hashing.codes(rows))


def test_simhash_is_the_sign_of_an_exact_sum():
    hashing = SimHash(25, tables=3, hashes=5, seed=2)
    rows = vectors(40, 25, 0.6, seed=1)
    rows[:, 3] += 1e-7
    rows[5] = torch.tensor([(-1.0) ** k for k in range(25)]) * 3e-39  # subnormal
    assert hashing.projections.abs().sum(0).tolist() == [8.0] * 15  # a third of 25
    for row, got in zip(rows, hashing.values(rows).permute(2, 0, 1), strict=True):
        for projection, value in zip(hashing.projections.T, got.reshape(-1).tolist(), strict=True):
            total = sum(Fraction(float(a)) * int(b) for a, b in zip(row, projection, strict=True))
            assert value == (total > 0), (total, value)


def test_codes_hold_the_values_first_one_highest():
    for family, (tables, hashes) in SIZES.items():
        hashing = make_family(family, 30, tables=tables, hashes=hashes)
        rows = vectors(20, 30, 0.8)
        values, codes = hashing.values(rows), hashing.codes(rows)
        weights = (1 << hashing.width) ** torch.arange(hashes - 1, -1, -1)
        assert torch.equal((values * weights[:, None]).sum(1).int(), codes)
        assert codes.max() < 1 << hashing.bits
        other = make_family(family, 30, tables=tables, hashes=hashes, seed=1)
        assert not torch.equal(other.codes(rows), codes)


def test_close_vectors_agree_more_often():
    torch.manual_seed(0)
    rows = torch.randn(50, 128)
    for family in FAMILIES:
        hashing = make_family(family, 128, tables=40, hashes=5)
        values = hashing.values(rows)
        shares = [
            (hashing.values(rows + far * torch.randn_like(rows)) == values).double().mean()
            for far in (0.0, 0.2, 1.0, 100.0)
        ]
        assert shares[0] == 1
        assert shares[0] > shares[1] > shares[2] > shares[3]
        assert shares[3] == pytest.approx({"dwta": 1 / 8, "simhash": 1 / 2}[family], abs=0.03)


def test_refusals_name_what_is_wrong():
    with pytest.raises(ValueError, match="wanted 10 or fewer"):
        DWTA(64, tables=1, hashes=11)
    with pytest.raises(ValueError, match="hashes=31"):
        SimHash(64, tables=1, hashes=31)
    with pytest.raises(ValueError, match="in_features=7: family 'dwta' wants 8"):
        DWTA(7, tables=1, hashes=1)
    with pytest.raises(ValueError, match="tables=0"):
        SimHash(8, tables=0, hashes=1)
    with pytest.raises(ValueError, match="family='minhash': wanted one of dwta, simhash"):
        make_family("minhash", 8, tables=1, hashes=1)
    with pytest.raises(TypeError, match="family=3"):
        make_family(3, 8, tables=1, hashes=1)
    with pytest.raises(ValueError, match="vectors of 8: wanted in_features=9"):
        make_family(DWTA(8, tables=1, hashes=1), 9, tables=1, hashes=1)
    with pytest.raises(ValueError, match=r"shape \(2, 9\): wanted \(n, 8\)"):
        DWTA(8, tables=1, hashes=1).codes(torch.zeros(2, 9))
    assert "STOC" in SimHash(8, tables=1, hashes=1).cite()


def _winner(row: np.ndarray, features: list[int]) -> int | None:
    there = [(row[feature], -place) for place, feature in enumerate(features) if row[feature]]
    return -max(there)[1] if there else None
