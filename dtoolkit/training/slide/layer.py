"""SlideLinear: an output layer whose neurons are looked up by the hash of the input."""

from __future__ import annotations

from typing import Any

from dtoolkit.sparsity.hashing import HashFamily
from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.hashed import Hashed
from dtoolkit.training.slide.labels import of_batch
from dtoolkit.training.slide.output import OutputLinear

__all__ = ["SlideLinear"]


class SlideLinear(Hashed, OutputLinear):
    """A linear layer of which each sample computes the neurons that hash as it does.

    L tables hold the neurons by the hash of their weights, K values a table. The active set of a
    sample is the union of its bucket in each table, and while it learns its labels besides. Chen
    et al., "SLIDE: in defense of smart algorithms over hardware acceleration for large-scale deep
    learning systems", MLSys 2020.

    To learn: ``layer.loss(hidden, labels).mean().backward()``, then a step of
    :class:`RowSparseAdam`, which tells the layer; it makes its tables anew when `refresh` says so.
    Who changes weights in another way calls :meth:`refresh`. To predict: ``layer(hidden)`` gives
    all logits, ``layer.predict(hidden, k, hashed=True)`` looks at the active ones alone.

    Spread over processes, each holds a range of `rows`, its own tables and its own optimizer
    state, and all see the whole batch: with the same seed, and uncapped, the pieces of a
    sample's set add up to that of one process. ``loss(..., peers=)`` says what is exchanged.
    By hand it is::

        active = layer.active(hidden, labels)
        values = layer.logits(hidden, active)
        largest = all_reduce_max(layer.kernels.maxima(active, values))
        total = all_reduce_sum(layer.kernels.sums(active, values, largest))
        delta, losses = layer.kernels.deltas(active, values, largest, total)
        delta /= len(hidden)                      # of the mean loss of a batch
        layer.add_gradient(RowGradient(active, delta, hidden, layer.updated))
        gradient = all_reduce_sum(layer.kernels.pull(active, delta, layer.weight))

    Parameters
    ----------
    in_features, out_features : int
    tables, hashes : int
        L and K. More hash functions a table make buckets smaller, more tables find more.
    family : str or HashFamily
        "dwta" or "simhash".
    capacity : int, optional
        Neurons of a bucket; by default all that hash to it. A table of limited capacity over
        several processes holds more than in one: each has its own.
    policy : str
        "fifo" or "reservoir": what a full bucket does (:class:`HashTables`).
    refresh : (first, growth), int, RefreshSchedule or None
        When tables are made anew (:class:`RefreshSchedule`); None: when you call
        :meth:`refresh`.
    bias, seed, rows
        See :class:`OutputLinear`. Weights alone are hashed, without their bias.

    Attributes
    ----------
    hashing : HashFamily
    tables : HashTables
        Of the neurons held here, by local number.
    codes : int32 tensor, shape (L, rows held)
        Codes of the neurons when the tables were made; part of the state, so that a layer that is
        loaded has the same tables.
    updates : int64 tensor
        Updates of the weights; part of the state.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        tables: int = 50,
        hashes: int = 8,
        family: str | HashFamily = "dwta",
        capacity: int | None = None,
        policy: str = "fifo",
        refresh: Any = (50, 0.1),
        bias: bool = True,
        seed: int = 0,
        rows: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias, seed=seed, rows=rows)
        self.hash_by(
            in_features,
            family=family,
            tables=tables,
            hashes=hashes,
            capacity=capacity,
            policy=policy,
            refresh=refresh,
            seed=seed,
        )

    def active(self, hidden: Any, labels: Any = None) -> ActiveSets:
        """Neurons held here that each sample computes.

        Parameters
        ----------
        hidden : tensor or sparse matrix, shape (samples, in_features)
            Sparse ones are hashed without being made dense.
        labels : see :func:`as_labels`, optional
            Classes that are computed in any case; None, as in a prediction: none.

        Returns
        -------
        ActiveSets

        Raises
        ------
        ValueError
            `hidden` is of another shape, or there are not as many labels.
        """
        codes = self.hashing.codes(hidden)
        true = of_batch(labels, samples=codes.shape[1], classes=self.out_features)
        sets: ActiveSets = self.kernels.unite(
            self.tables, codes, true, start=self.start, stop=self.stop
        )
        if labels is not None:
            self.retrieval.note(sets)
        return sets

    def updated(self) -> None:
        """Hear that the weights were updated: called by the optimizer."""
        super().updated()
        if self.refresh_due(int(self.updates)):
            self.refresh()

    def card(self) -> str:
        """The layer and what it retrieved, as HTML for a notebook; also ``_repr_html_``."""
        from dtoolkit.figures.slide_card import slide_card

        return slide_card(self)

    def _repr_html_(self) -> str:
        return self.card()

    def extra_repr(self) -> str:
        """What ``repr`` says."""
        room = "" if self.capacity is None else f", capacity={self.capacity}, {self.policy}"
        return (
            f"{super().extra_repr()}, family={self.hashing.name!r}, tables="
            f"{self.hashing.tables}, hashes={self.hashing.hashes}{room}"
        )
