"""What SLIDE is measured against, in its own interface: all neurons, sampled ones, random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import linear

from dtoolkit.philox import seed_key
from dtoolkit.sparsity.spreading import spread
from dtoolkit.training.slide import on_cpu
from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.labels import Labels, of_batch
from dtoolkit.training.slide.output import OutputLinear
from dtoolkit.training.slide.softmax import Peers

__all__ = ["FullLinear", "RandomLinear", "SampledLinear"]


class FullLinear(OutputLinear):
    """All neurons for every sample: the full softmax.

    Alone it is dense products in torch, with a dense ``weight.grad`` for any optimizer. Among
    `peers` it goes the way of the others, with sets of all neurons held.
    """

    def active(self, hidden: Any, labels: Any = None) -> ActiveSets:
        """All neurons held here, for every sample."""
        samples, rows = hidden.shape[0], self.stop - self.start
        true = of_batch(labels, samples=samples, classes=self.out_features)
        begin, end = (np.full((samples, 1), one, np.int32) for one in (0, rows))
        ids = np.arange(rows, dtype=np.int32)[None]
        return self._noted(begin, end, ids, true, labels)

    def loss(self, hidden: Any, labels: Any, *, peers: Peers | None = None) -> torch.Tensor:
        """Cross-entropy of each sample over all neurons, as of :class:`OutputLinear`."""
        if peers is not None or self.stop - self.start < self.out_features:
            return super().loss(hidden, labels, peers=peers)
        rows = self.dense(hidden)
        true = of_batch(labels, samples=len(rows), classes=self.out_features)
        device = self.weight.device
        logits = linear(rows, self.weight, self.bias)
        counts = torch.from_numpy(true.counts).to(device)
        sample = torch.repeat_interleave(counts)
        own = logits[sample, torch.from_numpy(true.ids).to(device)]
        mean = own.new_zeros(len(rows)).index_add(0, sample, own) / counts.clamp(min=1)
        return torch.where(counts > 0, torch.logsumexp(logits, 1) - mean, 0.0)

    def _noted(
        self, begin: Any, end: Any, ids: NDArray[np.int32], true: Labels, labels: Any
    ) -> ActiveSets:
        sets = on_cpu.gather(begin, end, ids, true, start=self.start, stop=self.stop)
        if labels is not None:
            self.retrieval.note(sets)
        return sets


class RandomLinear(FullLinear):
    """Random neurons for each sample, as many as are asked for, and its labels.

    Which they are depends on the seed, the number of updates and the sample's place in the batch,
    however the rows are spread over processes.

    Parameters
    ----------
    in_features, out_features : int
    count : int
        Neurons of a sample, over all processes.
    bias, seed, rows
        See :class:`OutputLinear`.
    """

    def __init__(self, in_features: int, out_features: int, *, count: int, **more: Any) -> None:
        super().__init__(in_features, out_features, **more)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= out_features:
            raise ValueError(f"count={count!r}: wanted 1 to out_features={out_features}")
        self.count = count

    def active(self, hidden: Any, labels: Any = None) -> ActiveSets:
        """Random neurons held here, with the labels of each sample where they are given."""
        samples = hidden.shape[0]
        true = of_batch(labels, samples=samples, classes=self.out_features)
        drawn = self._draw(samples)
        first = np.arange(samples)[:, None] * self.count
        begin, end = (
            (first[: len(drawn)] + (drawn < bound).sum(1, keepdims=True)).astype(np.int32)
            for bound in (self.start, self.stop)
        )
        begin, end = (np.broadcast_to(one, (samples, 1)).copy() for one in (begin, end))
        ids = (drawn.reshape(1, -1) - self.start).astype(np.int32)
        return self._noted(begin, end, ids, true, labels)

    def loss(self, hidden: Any, labels: Any, *, peers: Peers | None = None) -> torch.Tensor:
        """Cross-entropy of each sample over its active neurons, as of :class:`OutputLinear`."""
        return OutputLinear.loss(self, hidden, labels, peers=peers)

    def _draw(self, samples: int) -> NDArray[np.int64]:
        """Distinct neurons of the whole layer for each of some samples, ascending."""
        from dtoolkit.training.slide import kernels

        words = seed_key(self.seed, str(int(self.updates)), domain="dtoolkit.training.slide")
        key = np.uint64(words[0] | words[1] << 32)
        drawn = np.empty((samples, self.count), np.int64)
        height = max(1, -(-samples // 16))
        spread(kernels.draw, -(-samples // height), height, key, self.out_features, drawn)
        return drawn


class SampledLinear(RandomLinear):
    """Sampled softmax: one random set of neurons for the whole batch, and each sample's labels.

    Neurons are sampled uniformly, so that the correction by their probability is the same for all,
    and changes nothing.
    """

    def _draw(self, samples: int) -> NDArray[np.int64]:
        return super()._draw(1)
