"""Plugin of pytest for CI: a test may be skipped for want of a GPU, and for nothing else."""

from __future__ import annotations

from collections.abc import Generator

import pytest

skipped: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note tests that were skipped."""
    report = yield
    if report.skipped and item.get_closest_marker("gpu") is None:
        skipped.append(f"{item.nodeid}: {_reason(report)}")
    return report


@pytest.hookimpl(trylast=True)
def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note modules that were skipped as a whole."""
    if report.skipped:
        skipped.append(f"{report.nodeid}: {_reason(report)}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the run fail."""
    if skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped, and why."""
    if skipped:
        terminalreporter.section("skipped, but not for want of a GPU", red=True)
        for line in skipped:
            terminalreporter.write_line(line)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    place = report.longrepr
    return str(place[2] if isinstance(place, tuple) else place)
