"""The state of a training run: what is needed to go on as if it had not stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dtoolkit.training.plain import digest_of

__all__ = ["MEASURED", "RunState"]

MEASURED = "measured"
"""Name, in what is a rank's own, of what a clock said: kept, but no part of the digest."""


@dataclass(frozen=True, eq=False)
class RunState:
    """Where a run is: all that decides how it goes on.

    Attributes
    ----------
    step : int
        Steps that are done.
    strategy : str
    workers : int
        Ranks that it was made by; no part of the digest.
    seed : int
    model : dict of tensors
        The one model of all ranks: parameters and buffers by name.
    optimizer : dict
        ``"state"`` by parameter and key, and ``"groups"``
        (:func:`~dtoolkit.training.optimizer_state.optimizer_state`).
    schedule : dict or None
        The scheduler's state.
    sampler : dict
        Which samples come next: samples in the set, batch, micro-batches.
    masks : dict of tensors
        Masks of a sparse model, by parameter; they are no part of `model`.
    sparsity : dict
        What else sparse training needs to go on, in plain values: steps, densities, cuts.
    random : dict
        States of generators; empty where all that is random comes from the seed and the step.
    own : tuple of dict
        By rank, what is its own: residuals, a model that differs from the others', under
        ``"measured"`` what clocks said. Empty where ranks hold nothing of their own.
    terms : dict
        What the run was asked for, in plain values by the name of the argument
        (:func:`~dtoolkit.training.terms.terms_of`): a run goes on with what it began with. No part
        of the digest.
    """

    step: int
    strategy: str
    workers: int
    seed: int
    model: dict[str, torch.Tensor]
    optimizer: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, Any] | None = None
    sampler: dict[str, Any] = field(default_factory=dict)
    masks: dict[str, torch.Tensor] = field(default_factory=dict)
    sparsity: dict[str, Any] = field(default_factory=dict)
    random: dict[str, Any] = field(default_factory=dict)
    own: tuple[dict[str, Any], ...] = ()
    terms: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not any(self.own):  # nothing is any rank's own, however many there are
            object.__setattr__(self, "own", ())

    def digest(self) -> str:
        """Digest of the content: 32 hexadecimal digits.

        The same content has the same digest on any machine, in any process, on any number of
        workers that hold nothing of their own. Times that were measured are left out: no two runs
        have the same.
        """
        return digest_of(self.fields())

    def fields(self) -> dict[str, str]:
        """Digest of each part, by its name, such as ``"optimizer.0.weight.exp_avg"``."""
        parts = {
            "step": self.step,
            "strategy": self.strategy,
            "seed": self.seed,
            "sampler": self.sampler,
            "schedule": self.schedule,
            "random": self.random,
            **_parts("model", self.model),
            **_optimizer_parts(self.optimizer),
            **_parts("masks", self.masks),
            **_parts("sparsity", self.sparsity),
        }
        for rank, own in enumerate(self.own):
            decided = {name: value for name, value in own.items() if name != MEASURED}
            parts |= _parts(f"own.{rank}", decided)
        return {name: digest_of(value) for name, value in parts.items()}

    def differs_from(self, other: RunState) -> list[str]:
        """Names of the parts in which two states differ, or that only one of them has."""
        here, there = self.fields(), other.fields()
        return [
            name for name in dict.fromkeys([*here, *there]) if here.get(name) != there.get(name)
        ]

    def without_own(self) -> RunState:
        """The same without what is a rank's own: what all ranks share."""
        return replace(self, own=())

    def for_workers(self, workers: int) -> RunState:
        """The same for so many workers: times that others measured on theirs are left behind.

        What else is a rank's own stays, for whoever refuses to go on with it.
        """
        only_measured = all(set(own) <= {MEASURED} for own in self.own)
        return self.without_own() if workers != self.workers and only_measured else self

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return _nbytes((self.model, self.optimizer, self.masks, self.random, self.own))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, which is replaced only once the new one is complete."""
        from dtoolkit.training.statefile import write_state

        write_state(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunState:
        """Read a state from a file of :meth:`save`, a checkpoint, or a saved run.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        ValueError
            The file holds no state, is of a newer version, or is damaged; the text says which.
        """
        from dtoolkit.training.statefile import read_state

        return read_state(path)

    def __repr__(self) -> str:
        return (
            f"<RunState: {self.strategy}, step {self.step}, seed {self.seed}, "
            f"{sum(t.numel() for t in self.model.values()):,} numbers in the model, "
            f"digest {self.digest()[:12]}>"
        )


def _parts(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in values.items()}


def _optimizer_parts(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, kept in optimizer.get("state", {}).items():
        parts |= _parts(f"optimizer.{name}", kept)
    rest = {name: value for name, value in optimizer.items() if name != "state"}
    return parts | _parts("optimizer", rest)


def _nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(map(_nbytes, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return sum(map(_nbytes, value))
    return 0
