"""PartitionPanel: lay a matrix over ranks, see what must move, and what that takes on a network."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtoolkit.cluster import Cluster
from dtoolkit.comm import Network
from dtoolkit.errors import DtoolkitError
from dtoolkit.figures.overview import overview
from dtoolkit.figures.strategy_table import Contender, contenders_frame, strategy_table
from dtoolkit.figures.theme import Mode, bytes_text, count_text, plural, seconds_text
from dtoolkit.spmm import Plan
from dtoolkit.widgets import matrices, networks, partition_controls, planning
from dtoolkit.widgets.aside import Aside
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import Choice
from dtoolkit.widgets.matrices import GIVEN, UPLOADED, Matrix
from dtoolkit.widgets.measuring import Measured, measure
from dtoolkit.widgets.planning import Question
from dtoolkit.widgets.work import Job, Throttle
from dtoolkit.widgets.workers import Workers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PartitionPanel"]

_SENT = 0.03  # seconds in which the figure is on its way before more is computed

KEPT = 1_000_000
"""Nonzeros up to which all strategies' plans are kept, for the next choice of k or network."""


class PartitionPanel(Panel):
    """Choose matrix, parts, partitioner, strategy and network; see pattern, traffic and times.

    Show it by making it the last expression of a cell. Plans need no workers: they are made for up
    to 1,024 parts here. "Run on the workers" multiplies for real and puts what was measured beside
    what was planned (bytes) and predicted (seconds).

    Parameters
    ----------
    A : matrix, optional
        Anything that ``dt.read_matrix`` takes as an object; further ones can be chosen, drawn and
        uploaded in the panel.
    cluster : Cluster, optional
        Where to run. By default the panel starts one worker for each part when it first runs
        something, shares them with other panels, and closes them when it is closed.

    Attributes
    ----------
    plan : Plan or None
        What the figure shows.
    contenders : list of Contender
        The lines of the table.
    measured : Measured or None
        Of the last run, as long as it is of this plan.

    Examples
    --------
    >>> panel = dt.widgets.PartitionPanel(A)  # doctest: +SKIP
    >>> panel.set(parts=64, partition="metis")
    >>> await panel.wait()
    >>> panel.plan.volume
    """

    title = "Partition: lay out a matrix, and see what moves"

    def __init__(self, A: Any = None, cluster: Cluster | None = None) -> None:
        self._held: dict[str, Matrix] = {}
        if A is not None:
            self._held[GIVEN] = matrices.given(A)
        self.plan: Plan | None = None
        self.contenders: list[Contender] = []
        self.measured: Measured | None = None
        self._matrix: tuple[tuple[Any, ...], Matrix] | None = None
        self._laid: tuple[tuple[Any, ...], Any] | None = None
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._planned: Question | None = None
        self._wired: Network | None = None
        self._why = self._wire_code = ""
        self._workers = Workers(type(self).__name__, cluster)
        self._aside = Aside()
        self._retable = Throttle(self._guard("_write_table"))
        self._upload = partition_controls.upload(self._guard("_take_file"))
        super().__init__(
            partition_controls.groups(self._held.get(GIVEN), self._upload),
            run="Run on the workers",
            presets=partition_controls.presets(
                A is not None, cluster.size if cluster is not None else None
            ),
        )
        self.on_close(self._workers.release)
        self.on_close(self._aside.end)
        self.reset()

    # ------------------------------------------------------------------- what it shows

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw the pattern of the planned matrix beside the plan's traffic."""
        if self.plan is None or self._matrix is None or self._planned is None:
            return overview(None, None, beside=self.wide, width=self.room, mode=mode)
        return overview(
            self._matrix[1].A,
            self.plan,
            k=self._planned.k,
            dtype=self._planned.dtype,
            beside=self.wide,
            width=self.room,
            mode=mode,
        )

    def table(self) -> pd.DataFrame:
        """Return the strategies side by side (:func:`contenders_frame`)."""
        return contenders_frame(self.contenders)

    def code(self) -> str:
        """Return Python that makes this plan, its prediction and its figure."""
        if self._matrix is None or self._planned is None:
            return "# Nothing is planned yet.\n"
        made = planning.code(self._matrix[1], self._planned, self._wire_code)
        if self.measured is not None:
            made += planning.run_code(self._planned)
        return made

    # --------------------------------------------------------------------- what it does

    async def update(self, job: Job) -> None:
        """Plan anew: the chosen strategy first, then all others for the table."""
        self._fit()
        question = self._question()
        job.name = f"planning with {planning.partitioner_names()[question.partition]}"
        matrix = await self._get_matrix(job)
        self._wire(question)
        self._say_busy(f"Laying out {matrix.label}")
        rows, columns = await self._lay_out(job, matrix, question)
        self._say_busy(f"Planning {question.strategy} over {plural(question.parts, 'part')}")
        made = await self._make(job, matrix, question, rows, columns, question.strategy)
        if self._planned != question or self.plan is None or made.digest != self.plan.digest:
            self.measured = None
        self.plan, self._planned = made, question
        self._matrix = (self._key(), matrix)
        own = planning.contender(made, question, self._wired, self._why)
        self.redraw()
        self._put([own], waiting=True)
        self.say(self._words(own))
        await asyncio.sleep(_SENT)
        await self._compare(job, matrix, question, rows, columns, own)

    async def execute(self, job: Job) -> None:
        """Multiply on the workers, and put what was measured beside the rest."""
        if self.plan is None or self._planned != self._question():
            await self.update(job)
        job.name = "the run"
        plan, question, matrix = self.plan, self._planned, self._matrix
        assert plan is not None
        assert question is not None
        assert matrix is not None
        if self._workers.running is None:
            self._say_busy(f"Starting {question.parts:,} workers, which takes some seconds")
        cluster = await self._workers.get(job, question.parts)
        async with self._workers.turn(cluster, lambda words: self._say_busy(f"Waiting {words}")):
            self.measured = await measure(
                job, cluster, matrix[1].A, plan,
                k=question.k, dtype=question.dtype, seed=question.seed, tell=self._tell,
            )  # fmt: skip
        self._put(self.contenders)
        own = next(c for c in self.contenders if c.strategy == plan.strategy)
        self.say(self._measured_words(self.measured, own))

    # ----------------------------------------------------------------- behind the scenes

    def _fit(self) -> None:
        """Show the controls that matter for what is chosen."""
        drawn = self.controls["matrix"].value in matrices.GENERATORS
        for name in ("rows", "degree"):
            self.controls[name].show(drawn)
        tiers = self.controls["network"].value != "flat"
        for name in ("ranks_per_node", "inside"):
            self.controls[name].show(tiers)

    def _key(self) -> tuple[Any, ...]:
        """What the matrix depends on."""
        s = self.settings
        kind = s["matrix"]
        return (kind, s["rows"], s["degree"], s["seed"]) if kind in matrices.GENERATORS else (kind,)

    def _question(self) -> Question:
        s = self.settings
        tiers = s["network"] != "flat" and s["parts"] % s["ranks_per_node"] == 0
        return Question(
            parts=s["parts"],
            partition=s["partition"],
            strategy=s["strategy"],
            ranks_per_node=s["ranks_per_node"] if tiers else None,
            k=s["k"],
            dtype=s["dtype"],
            seed=s["seed"],
        )

    async def _get_matrix(self, job: Job) -> Matrix:
        key = self._key()
        if key[0] in self._held:
            return self._held[key[0]]
        if self._matrix is not None and self._matrix[0] == key:
            return self._matrix[1]
        self._say_busy("Making the matrix")
        s = self.settings
        return await job.in_thread(matrices.make, s["matrix"], s["rows"], s["degree"], s["seed"])

    async def _lay_out(self, job: Job, matrix: Matrix, question: Question) -> tuple[Any, Any]:
        """Lay out rows and columns, in a process of its own where that would hold the kernel."""
        key = (id(matrix), question.parts, question.partition, question.seed)
        if self._laid is not None and self._laid[0] == key:
            return self._laid[1]
        arguments = (matrix.A, question.parts, question.partition, question.seed)
        if matrix.A.nnz >= planning.SLOW.get(question.partition, 2**62):
            self._say_busy(
                f"{planning.partitioner_names()[question.partition]}: at work on "
                f"{count_text(matrix.A.nnz, 'nonzeros')}"
            )
            laid = await self._aside.run(job, planning.layouts, *arguments)
        else:
            laid = await job.in_thread(planning.layouts, *arguments)
        self._laid = (key, laid)
        self._kept = matrix  # its id is in the key
        self._plans.clear()
        return laid

    async def _make(
        self, job: Job, matrix: Matrix, question: Question, rows: Any, columns: Any, name: str
    ) -> Plan:
        """Plan a strategy, or take the plan that was made on these layouts before."""
        key = (name, question.ranks_per_node)
        if key not in self._plans:
            made = await job.in_thread(planning.answer, matrix.A, question, rows, columns, name)
            if matrix.A.nnz > KEPT:
                return made
            self._plans[key] = made
        return self._plans[key]

    async def _compare(
        self, job: Job, matrix: Matrix, question: Question, rows: Any, columns: Any, own: Contender
    ) -> None:
        """Plan the other strategies, one after the other, for the table."""
        found = {own.strategy: own}
        names = list(planning.strategy_names())
        for number, name in enumerate(names):
            if name not in found:
                self.progress(number, len(names))
                try:
                    made = await self._make(job, matrix, question, rows, columns, name)
                    found[name] = planning.contender(made, question, self._wired, self._why)
                except DtoolkitError as error:
                    found[name] = Contender(strategy=name, note=str(error))
            self._put([found[n] for n in names if n in found], waiting=number + 1 < len(names))

    def _wire(self, question: Question) -> None:
        """Build the network, or note why there is none."""
        s = self.settings
        for name in ("between", "inside", "latency"):
            self.controls[name].parsed()  # type: ignore[attr-defined]
        wires = networks.Wires(
            s["network"], question.parts, s["ranks_per_node"], s["between"], s["inside"],
            s["latency"],
        )  # fmt: skip
        self._wired, self._wire_code, self._why = None, "", ""
        try:
            self._wired, self._wire_code = networks.make(wires)
        except ValueError as error:
            self._why = str(error)

    def _put(self, contenders: list[Contender], *, waiting: bool = False) -> None:
        """Take in the lines of the table, and show it."""
        m = self.measured
        chosen = self.plan.strategy if self.plan is not None else ""
        self.contenders = [
            dataclasses.replace(
                c,
                expected=self._expected(c.strategy),
                measured=m.seconds if m is not None and c.strategy == chosen else None,
            )
            for c in contenders
        ]
        self._waiting = "More strategies are being planned …" if waiting else ""
        if waiting:
            self._retable()
        else:
            self._retable.flush()

    def _expected(self, strategy: str) -> float | None:
        """Seconds that a strategy is predicted to take on the workers that were measured."""
        q = self._planned
        if self.measured is None or q is None:
            return None
        made = self._plans.get((strategy, q.ranks_per_node))
        if made is None and self.plan is not None and self.plan.strategy == strategy:
            made = self.plan
        if made is None:
            return None
        return float(made.predict(self.measured.network, k=q.k, dtype=q.dtype).seconds)

    def _write_table(self) -> None:
        self._shell.below.value = strategy_table(
            self.contenders,
            chosen=self.plan.strategy if self.plan is not None else "",
            caption=self._caption(),
            waiting=self._waiting,
        )

    def _caption(self) -> str:
        q = self._planned
        if q is None:
            return ""
        text = (
            f"Balance: busiest rank over the mean, 1 is even. Times: one product with {q.k:,} "
            f"columns of {q.dtype}"
        )
        if self._wired is None:
            return f"{text}. No times: {self._why}."
        return f"{text} on {self._wired.name}, exchange only; they leave out what a rank computes."

    def _words(self, own: Contender) -> str:
        """Say what the figure shows."""
        assert self.plan is not None
        assert self._matrix is not None
        assert self._planned is not None
        p = self.plan
        laid = planning.partitioner_names()[self._planned.partition]
        text = (
            f"{self._matrix[1].label}, {p.shape[0]:,} × {p.shape[1]:,} with {p.nnz:,} nonzeros, "
            f"over {plural(p.parts, 'part')} ({laid}): "
            f"{p.strategy} sends {p.volume:,} rows, {bytes_text(own.sent_bytes or 0)} a product"
        )
        if own.between is not None:
            text += f", {own.between:,} rows of it between nodes"
        if own.seconds is not None:
            text += f"; modelled {seconds_text(own.seconds)} a product"
        return f"{text}. {self._why}".rstrip(". ") + "."

    def _measured_words(self, m: Measured, own: Contender) -> str:
        sent = bytes_text(int(m.sent.sum()))
        agree = "as planned" if m.as_planned else f"where {bytes_text(m.planned)} were planned"
        return (
            f"Measured on {plural(len(m.sent), 'worker')}: a product by {own.strategy} took "
            f"{seconds_text(m.seconds)} (median of {len(m.rounds)}), where "
            f"{seconds_text(own.expected or 0)} were modelled for these workers, and moved "
            f"{sent}, {agree}."
        )

    def _say_busy(self, words: str) -> None:
        self.say(f"{words} …")
        self.progress(0)

    def _tell(self, words: str, done: int, total: int) -> None:
        self.say(f"{words[0].upper()}{words[1:]}, {done} of {total} …" if total else f"{words} …")
        self.progress(done, total)

    def _take_file(self, name: str, content: bytes) -> None:
        self._start("working", f"reading {name}", lambda job: self._read(job, name, content))

    async def _read(self, job: Job, name: str, content: bytes) -> None:
        self._say_busy(f"Reading {name}")
        self._held[UPLOADED] = await job.in_thread(matrices.read_upload, name, content)
        choice = self.controls["matrix"]
        assert isinstance(choice, Choice)
        with self.quietly():
            choice.offer({**choice.options, UPLOADED: f"File: {name}"}, UPLOADED)
        await self.update(job)
