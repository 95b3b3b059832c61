"""Locality-sensitive hashing: families of hash functions, tables of neurons, their refreshes."""

from dtoolkit.sparsity.hashing.dwta import DWTA
from dtoolkit.sparsity.hashing.family import FAMILIES, HashFamily, make_family
from dtoolkit.sparsity.hashing.probability import retrieval_probability, tables_for
from dtoolkit.sparsity.hashing.refresh import RefreshSchedule, as_refresh
from dtoolkit.sparsity.hashing.simhash import SimHash
from dtoolkit.sparsity.hashing.tables import Buckets, HashTables

__all__ = [
    "DWTA",
    "FAMILIES",
    "Buckets",
    "HashFamily",
    "HashTables",
    "RefreshSchedule",
    "SimHash",
    "as_refresh",
    "make_family",
    "retrieval_probability",
    "tables_for",
]
