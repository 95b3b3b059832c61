"""Networks as JSON."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtoolkit.comm.units import seconds, share

if TYPE_CHECKING:
    from dtoolkit.comm.network import Network

__all__ = ["from_json", "load", "save", "to_json"]

FORMAT = "dtoolkit network"
VERSION = 1
_BESIDE = {"overhead": 0.0, "overlap": 1.0}  # fields of any kind of network, as they usually are


def to_json(network: Network) -> str:
    """Write a network as one line of JSON."""
    return json.dumps(
        {"format": FORMAT, "version": VERSION, "kind": network.kind, **_fields(network)}
    )


def from_json(cls: type[Network], text: str) -> Network:
    """Read :func:`to_json`'s text: see :meth:`Network.from_json`."""
    try:
        record = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"this is not a network: it is not JSON ({error})") from error
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise ValueError(f"this is not a network: it does not say {FORMAT!r}")
    version = record.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise ValueError(
            f"this is a network of version {version!r}; this dtoolkit reads version {VERSION}. "
            "Update dtoolkit, or write the network again."
        )
    kind = record.pop("kind", None)
    makers: dict[Any, Any] = {
        "flat": cls.flat,
        "two-tier": cls.two_tier,
        "dims": cls.dims,
        "measured": cls.measured,
    }
    if not isinstance(kind, str) or kind not in makers:
        raise ValueError(f"kind={kind!r}: wanted one of {', '.join(makers)}")
    beside = {
        "overhead": seconds(record.pop("overhead", _BESIDE["overhead"]), "overhead"),
        "overlap": share(record.pop("overlap", _BESIDE["overlap"]), "overlap"),
    }
    try:
        return replace(makers[kind](**record), **beside)
    except TypeError as error:
        raise ValueError(f"this is not a whole {kind} network: {error}") from error


def save(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network to a file, by way of a neighbour, so that a failure leaves no half file."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.write_text(to_json(network) + "\n")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def load(cls: type[Network], path: str | os.PathLike[str]) -> Network:
    """Read a file of :func:`save`."""
    try:
        return from_json(cls, Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def _fields(network: Network) -> dict[str, Any]:
    """Return the arguments that make the same network again."""
    more: dict[str, Any] = {} if network.rate is None else {"rate": network.rate}
    more |= {n: getattr(network, n) for n, usual in _BESIDE.items() if getattr(network, n) != usual}
    table = network.table
    if table is not None:
        bandwidth = table.bandwidth.copy()
        bandwidth[range(len(bandwidth)), range(len(bandwidth))] = 0  # infinite, which JSON lacks
        return {
            "latency": table.latency.tolist(),
            "bandwidth": bandwidth.tolist(),
            "host_capacity": table.host_capacity.tolist(),
            "nodes": table.nodes.tolist(),
            "message": table.message,
            "error": table.error,
            **more,
        }
    if network.kind == "flat":
        (one,) = network.dimensions
        return {"ranks": one.ranks, "bandwidth": one.bandwidth, "latency": one.latency, **more}
    if network.kind == "two-tier":
        inner, outer = network.dimensions
        return {
            "nodes": outer.ranks,
            "ranks_per_node": inner.ranks,
            "inter": outer.bandwidth,
            "intra": inner.bandwidth,
            "inter_latency": outer.latency,
            "intra_latency": inner.latency,
            "node": network.node_bandwidth,
            **more,
        }
    return {
        "dimensions": [[d.kind, d.ranks, d.bandwidth, d.latency] for d in network.dimensions],
        **more,
    }
