"""A pytest plugin for environments without torch: skips the tests that need it, with a reason, and counts them in the summary.

The root `conftest.py` registers it only where torch is not installed, as on a Python without a wheel of the tested torch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

REASON = "torch is not installed"


def needs_torch(error: BaseException | None) -> bool:
    """Return whether torch's absence caused an exception, directly or through exceptions raised while it was handled."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return True
        # The refusal itself, or a failed assertion that shows the refusal of a command.
        if "this needs the package torch" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


class TestModule(pytest.Module):
    """A file of tests that is skipped if its import fails for torch."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return list(super().collect())
        except self.CollectError as error:
            if not needs_torch(error):
                raise
        pytest.skip(REASON, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return TestModule.from_parent(parent, path=module_path)


def _skip_without_torch() -> Generator[None, object, object]:
    try:
        return (yield)
    except Exception as error:
        if not needs_torch(error):
            raise
    pytest.skip(REASON)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from _skip_without_torch())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _skip_without_torch())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many files and tests were skipped for torch."""
    skipped = set(_skipped_for_torch(terminalreporter))
    tests = sum("::" in node for node in skipped)
    terminalreporter.write_line(f"{REASON}: {len(skipped) - tests} files and {tests} tests of other files skipped")


def _skipped_for_torch(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    for report in terminalreporter.getreports("skipped"):
        if isinstance(report.longrepr, tuple) and "torch" in report.longrepr[2]:
            yield report.nodeid
