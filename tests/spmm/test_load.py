"""What strategies ask of each rank, reckoned in closed form, against lists of pairs."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from dtoolkit.arrays import Layout
from dtoolkit.spmm import routes
from dtoolkit.spmm.decisions import _grid_work
from dtoolkit.spmm.load import Load

GRIDS = [(parts, m) for parts in (1, 4, 6, 12, 36) for m in range(1, parts + 1) if parts % m == 0]


@pytest.mark.parametrize(("parts", "members"), GRIDS)
def test_the_load_of_a_grid_is_that_of_its_stages(parts, members):
    rng = np.random.default_rng(parts * 100 + members)
    rows, columns = (Layout.from_parts(rng.integers(0, parts, n), parts) for n in (50, 70))
    nonzeros = rng.integers(0, 9, (parts, parts))
    target, source = np.indices(nonzeros.shape)
    work = np.zeros(parts, np.int64)
    np.add.at(work, target // members * members + source % members, nonzeros)
    np.testing.assert_array_equal(_grid_work(nonzeros, members), work)
    stages = routes.over_grid(rows, columns, members, nonzeros)
    for nodes in (None, np.arange(parts) // 2, rng.integers(0, 3, parts)):
        where = None if nodes is None else nodes.astype(np.int32)
        listed = Load.of_stages("2d", stages, work, where)
        reckoned = Load.over_grid("2d", (columns.sizes, rows.sizes), members, work, where)
        for field in fields(Load):
            want, got = getattr(listed, field.name), getattr(reckoned, field.name)
            np.testing.assert_array_equal(got, want, err_msg=field.name)
