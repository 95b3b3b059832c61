"""Planted extreme classification: up to millions of classes, long-tailed, with a rule to find."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array

from dtoolkit.data.canonical import from_compressed
from dtoolkit.data.labelled_samples import LabelledSamples
from dtoolkit.data.sampling import check_count, check_probability

__all__ = ["extreme"]

_CHUNK = 1 << 15  # samples that are drawn at a time: what bounds the memory
_OWN, _SHARED = 24, 24  # features that tell a class, and a topic


def extreme(
    classes: int,
    features: int,
    samples: int,
    *,
    seed: int = 0,
    labels: int = 1,
    active: int = 32,
    noise: float = 0.25,
    exponent: float = 1.0,
    test: float = 0.2,
) -> LabelledSamples:
    """Draw samples of a multi-label task whose rule is known.

    Every class has 24 features of its own, and belongs to one of about ``sqrt(classes)`` topics,
    which have 24 each. A sample draws its labels from one topic, the k-th most common class having
    a weight of ``1 / k**exponent``; then ``active`` features: a share of ``noise`` from all there
    are, of the rest two thirds from those of its labels and a third from those of their topic.
    So related classes look alike, and few samples show a rare one. A feature that was drawn more
    than once weighs more; rows have unit length.

    What is drawn depends on the seed, the sample and what is drawn alone, by a hash of its own:
    a longer set begins with the shorter one, but for the split.

    Parameters
    ----------
    classes : int
        Labels that there are; 2 at least. A million takes 20 MB while it is drawn.
    features : int
        Columns; 2 at least.
    samples : int
        Rows, those for the test included; 2 at least.
    seed : int, optional
        Same seed, same set, on any machine.
    labels : int, optional
        Labels of a sample, at most: from 1 to this, each as likely; fewer where a class was drawn
        twice.
    active : int, optional
        Features that are drawn for a sample.
    noise : float, optional
        Share of them that says nothing, from 0 to 1.
    exponent : float, optional
        How long-tailed the classes are: 0 makes all alike.
    test : float, optional
        Share of the samples that is for the test, from 0 to 1: the last ones, rounded down.

    Returns
    -------
    LabelledSamples
        float32 features of shape (samples, features), labels of shape (samples, classes).

    Raises
    ------
    TypeError, ValueError
        If an argument is out of its range, named in the error.

    Examples
    --------
    >>> data = extreme(1000, 500, 2000, seed=1)
    >>> data.matrix.shape, data.labels.shape, len(data.test)
    ((2000, 500), (2000, 1000), 400)
    """
    for name, value in (("classes", classes), ("features", features), ("samples", samples)):
        check_count(name, value, least=2)
    check_count("labels", labels, least=1)
    check_count("active", active, least=1)
    check_probability("noise", noise)
    check_probability("test", test)
    if not 0 <= float(exponent) < np.inf:
        raise ValueError(f"exponent={exponent}: want a number of at least 0")
    draw = _Draws(check_count("seed", seed), classes, features, float(exponent))
    parts = [
        draw.chunk(np.arange(start, min(start + _CHUNK, samples)), labels, active, float(noise))
        for start in range(0, samples, _CHUNK)
    ]
    held_out = int(samples * test)
    return LabelledSamples(
        name=f"extreme({classes}, {features}, {samples}, seed={seed})",
        description=f"{samples:,} samples, planted: each has {active} of {features:,} features "
        f"that tell which of {classes:,} classes it has",
        matrix=_stacked([one for one, _ in parts], (samples, features)),
        labels=_stacked([one for _, one in parts], (samples, classes)),
        source="drawn by dtoolkit.data.extreme",
        licence="none needed",
        train=np.arange(samples - held_out),
        test=np.arange(samples - held_out, samples),
    )


class _Draws:
    """What a seed draws for each sample, class and topic."""

    def __init__(self, seed: int, classes: int, features: int, exponent: float) -> None:
        self.seed, self.classes, self.features = seed, classes, features
        self.topics = max(1, round(classes**0.5))
        weights = np.arange(1, classes + 1, dtype=np.float64) ** -exponent
        # The k-th most common class has the number order[k]: numbers say nothing of how common.
        self.order = np.argsort(self.random("order", np.arange(classes)), kind="stable")
        self.common = np.cumsum(weights)
        # Classes k, k + topics, k + 2 topics ... make a topic: all topics have common ones.
        within = np.arange(0, classes, self.topics, dtype=np.float64) + 1
        self.inner = np.cumsum(within**-exponent)

    def chunk(
        self, ids: NDArray, labels: int, active: int, noise: float
    ) -> tuple[csr_array, csr_array]:
        """Features and labels of some samples, as canonical CSR."""
        ranks, count = self._labels(ids, labels)
        rows = np.repeat(np.arange(len(ids)), count)
        valid = np.arange(labels)[None, :] < count[:, None]
        numbers = self.order[ranks[valid]]
        slots = np.arange(active)[None, :]
        lots = self.random("kind", ids[:, None], slots)
        which = (self.random("label", ids[:, None], slots) * count[:, None]).astype(np.int64)
        rank = np.take_along_axis(ranks, which, axis=1)
        place = self.random("place", ids[:, None], slots)
        # Every choice is drawn for every slot, so that none depends on the others.
        own = self.feature("class", rank, (place * _OWN).astype(np.int64))
        shared = self.feature("topic", rank % self.topics, (place * _SHARED).astype(np.int64))
        chosen = np.where(lots < noise + (1 - noise) * 2 / 3, own, shared)
        chosen = np.where(lots < noise, (place * self.features).astype(np.int64), chosen)
        found = _counted(chosen, self.features)
        norms = np.sqrt(np.add.reduceat(found.data.astype(np.float64) ** 2, found.indptr[:-1]))
        found.data /= np.repeat(norms, np.diff(found.indptr)).astype(np.float32)
        marks = csr_array(
            (np.ones(len(rows), np.float32), numbers, np.concatenate([[0], np.cumsum(count)])),
            shape=(len(ids), self.classes),
        )
        marks.sum_duplicates()
        marks.data[:] = 1
        return found, marks

    def _labels(self, ids: NDArray, labels: int) -> tuple[NDArray, NDArray]:
        """How common the labels of some samples are, (samples, labels), and how many each has."""
        slots = np.arange(labels)[None, :]
        lots = self.random("class", ids[:, None], slots)
        first = np.searchsorted(self.common, lots[:, :1] * self.common[-1], side="right")
        topic = np.minimum(first, self.classes - 1) % self.topics
        steps = np.searchsorted(self.inner, lots[:, 1:] * self.inner[-1], side="right")
        more = topic + steps * self.topics
        ranks = np.concatenate([first, np.where(more < self.classes, more, topic)], axis=1)
        count = 1 + (self.random("count", ids) * labels).astype(np.int64)
        return np.minimum(ranks, self.classes - 1), np.minimum(count, labels)

    def feature(self, name: str, owner: NDArray, slot: NDArray) -> NDArray[np.int64]:
        """The feature in a slot of a class or topic."""
        return (self.random(name + " features", owner, slot) * self.features).astype(np.int64)

    def random(self, name: str, *items: NDArray) -> NDArray[np.float64]:
        """Numbers from 0 to 1, by the seed, a name and up to two items."""
        text = f"dtoolkit.data.extreme {self.seed} {name}".encode()
        digest = hashlib.blake2b(text, digest_size=8).digest()
        mixed: NDArray[np.uint64] = np.frombuffer(digest, "<u8").astype(np.uint64)
        for item in items:
            mixed = _mix(mixed + np.asarray(item).astype(np.uint64) * _STEP)
        uniform: NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return uniform


_STEP = np.uint64(0x9E3779B97F4A7C15)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); wraps on purpose."""
    words = words + _STEP
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _counted(chosen: NDArray[np.int64], features: int) -> csr_array:
    """How often each row has drawn each feature."""
    rows, slots = chosen.shape
    found = csr_array(
        (
            np.ones(chosen.size, np.float32),
            chosen.ravel(),
            np.arange(0, chosen.size + 1, slots),
        ),
        shape=(rows, features),
    )
    found.sum_duplicates()
    return found


def _stacked(parts: list[csr_array], shape: tuple[int, int]) -> csr_array:
    whole = sparse.vstack(parts, format="csr")
    return from_compressed(whole.indptr, whole.indices, whole.data, shape, what="extreme")
