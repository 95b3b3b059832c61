"""Before and after, layer by layer: the table of a sparse model, and its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from dtoolkit.sparsity.sites import Site
from dtoolkit.sparsity.structures import Structure

if TYPE_CHECKING:
    from dtoolkit.sparsity.sparsifier import Sparsifier

__all__ = ["layer_table", "sparsifier_card"]

_ROWS = 60


def layer_table(
    sites: Sequence[Site],
    densities: Mapping[str, float],
    structure: Structure,
    flops: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Make a table with one row a sparse layer.

    Parameters
    ----------
    sites : sequence of Site
    densities : mapping of str to float
        Asked for, by name.
    structure : Structure
    flops : mapping of str to float, optional
        Of the dense layer in one forward pass, by name.

    Returns
    -------
    pandas.DataFrame
        ``layer``, ``shape``, ``asked_density``, ``real_density``, ``parameters`` (before),
        ``live_parameters`` (after), ``units``, ``live_units``, ``tied_to`` (further names), and
        with `flops` also ``flops`` and ``live_flops``: what is left if zeros are skipped, which a
        masked layer does not do.
    """
    rows = []
    for site in sites:
        mask = site.mask
        shape = tuple(mask.shape)
        live, size = int(mask.sum()), mask.numel()
        rows.append(
            {
                "layer": site.name,
                "shape": shape,
                "asked_density": densities[site.name],
                "real_density": live / size,
                "parameters": size,
                "live_parameters": live,
                "units": structure.size(shape),
                "live_units": int(structure.gather(mask).sum()),
                "tied_to": ", ".join(site.aliases),
            }
        )
        if flops is not None:
            count = flops[site.name]
            rows[-1] |= {"flops": count, "live_flops": count * live / size}
    return pd.DataFrame(rows)


def sparsifier_card(sparsifier: Sparsifier) -> str:
    """Draw the table as HTML for a notebook."""
    from dtoolkit.figures.html import card, facts, table

    frame = sparsifier.table()
    total, live = int(frame["parameters"].sum()), int(frame["live_parameters"].sum())
    asked = float((frame["asked_density"] * frame["parameters"]).sum()) / total
    others = sum(p.numel() for p in sparsifier.model.parameters()) - total
    pairs = [
        ("density", f"{live / total:.4g}, asked {asked:.4g}"),
        ("weights in sparse layers", f"{total:,} before, {live:,} after"),
        ("other parameters", f"{others:,}"),
        *sparsifier.settings().items(),
        ("steps", f"{sparsifier.steps:,}"),
    ]
    head = ["layer", "shape", "asked", "real", "before", "after"]
    with_flops = "flops" in frame
    if with_flops:
        head += ["FLOPs before", "after"]
        dense, sparse = frame["flops"].sum(), frame["live_flops"].sum()
        pairs.insert(2, ("FLOPs of the example", f"{dense:.4g} before, {sparse:.4g} after"))
    rows = []
    for row in frame.head(_ROWS).to_dict("records"):
        cells = [
            row["layer"] + (f" (= {row['tied_to']})" if row["tied_to"] else ""),
            " x ".join(map(str, row["shape"])),
            f"{row['asked_density']:.4g}",
            f"{row['real_density']:.4g}",
            f"{row['parameters']:,}",
            f"{row['live_parameters']:,}",
        ]
        if with_flops:
            cells += [f"{row['flops']:.4g}", f"{row['live_flops']:.4g}"]
        rows.append(cells)
    caption = "Sparse layers, before and after. Weights are masked: zeros are still multiplied."
    if len(frame) > _ROWS:
        caption += f" The first {_ROWS} of {len(frame)}; .table() has all."
    heading = f"{len(frame)} layers at density {live / total:.3g}"
    return card(
        "Sparsifier", heading, facts(pairs), table(head, rows, caption=caption), badge="masked"
    )
