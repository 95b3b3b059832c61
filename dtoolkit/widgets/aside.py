"""A helper process for pure computations that would hold this one.

METIS and Mt-KaHyPar keep Python's global lock as long as they compute: in a thread they would stop
the kernel and every button with it. Here they compute in a process of their own, which stays for
the next time, is killed where nobody wants the result any more, and ends with the kernel: a reaper
sees to that, whatever it computes then.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from dtoolkit.cluster.reaping import Reaping
from dtoolkit.widgets.work import Job

__all__ = ["Aside"]

T = TypeVar("T")

_LOOP = """
import os, pickle, sys
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what libraries print is no answer
while True:
    try:
        function, args = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        answer = (True, function(*args))
    except BaseException as error:
        answer = (False, error)
    try:
        sent = pickle.dumps(answer)
    except Exception as error:
        sent = pickle.dumps((False, RuntimeError(f"{type(answer[1]).__name__}: {answer[1]}")))
    answers.write(sent)
    answers.flush()
"""


class Aside:
    """Runs functions of modules in one helper process, one after the other."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._reaping: Reaping | None = None
        self._turn = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Of the helper, where there is one."""
        return self._process.pid if self._process is not None else None

    async def run(self, job: Job, function: Callable[..., T], *args: Any) -> T:
        """Run ``function(*args)`` there; where the job is stopped, the helper is killed.

        Parameters
        ----------
        job : Job
        function : callable
            Of a module that the helper can import too; arguments and result can be pickled.

        Raises
        ------
        RuntimeError
            The helper ended by itself.
        """
        done = False
        try:
            result: T = await job.in_thread(self._ask, function, args)
            done = True
            return result
        finally:
            if not done and not job.wanted:
                self.end()

    def end(self) -> None:
        """Kill the helper, if there is one; the next call starts another."""
        process, self._process = self._process, None
        reaping, self._reaping = self._reaping, None
        if process is not None:
            process.kill()
            process.wait(timeout=10)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    _shut(pipe)
        if reaping is not None:
            reaping.end()

    def _ask(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        with self._turn:
            process = self._process
            if process is None or process.poll() is not None:
                self.end()
                process = self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump((function, args), process.stdin, protocol=5)
                process.stdin.flush()
                good, answer = pickle.load(process.stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
                raise RuntimeError(
                    f"the helper process that computes {function.__name__} ended "
                    f"(exit code {process.poll()}): it may have run out of memory"
                ) from error
        if not good:
            raise answer
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        found = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": found, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # an interrupt of the kernel is not for it
        )
        self._reaping = Reaping()
        self._reaping.register(self._process.pid)
        return self._process


def _shut(pipe: Any) -> None:
    try:
        pipe.close()
    except OSError:  # what was not written yet has no reader any more
        return
