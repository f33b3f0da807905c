"""With CI=true a skipped test fails the run: in CI every tool and model that a test needs is there."""

from __future__ import annotations

import os

import pytest


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turns a passing run into a failing one when something was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not _in_ci() or session.exitstatus != pytest.ExitCode.OK:
        return
    if reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says why, below the list of skips."""
    skipped = terminalreporter.stats.get("skipped")
    if skipped and _in_ci():
        terminalreporter.write_line(f"{len(skipped)} skipped, which fails the run because CI is set.", red=True)
