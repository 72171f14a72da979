"""A pytest plugin: skips files and tests that fail for an optional package which is not installed, with that reason.

The root `conftest.py` registers it where one is missing, as torch is on a Python without a wheel of the tested one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = (
    *(
        "torch",
        "transformers",
        "sentencepiece",
        "tokenizers",
        "sacrebleu",
        "sklearn",
        "threadpoolctl",
        "safetensors",
        "filelock",
    ),
    *("huggingface_hub", "ctranslate2", "aiohttp", "uvloop", "prometheus_client", "distributed", "redis"),
)
"""What the extras of simnmt install."""
MISSING = {package for package in PACKAGES if find_spec(package) is None}


def missing_package(error: BaseException | None) -> str | None:
    """Return the package whose absence caused an exception, directly or through exceptions raised while it was handled."""
    while error is not None:
        named = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        for package in MISSING:
            # The last two: a refusal, or a failed assertion that shows that of a command.
            if package == named or f"the package {package}" in str(error) or f"{package} is not installed" in str(error):
                return package
        error = error.__cause__ or error.__context__
    return None


class TestModule(pytest.Module):
    """A file of tests that is skipped if its import fails for such a package."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return list(super().collect())
        except self.CollectError as error:
            package = missing_package(error)
            if package is None:
                raise
        pytest.skip(f"{package} is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return TestModule.from_parent(parent, path=module_path)


def _skip_without() -> Generator[None, object, object]:
    try:
        return (yield)
    except Exception as error:
        package = missing_package(error)
        if package is None:
            raise
    pytest.skip(f"{package} is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from _skip_without())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _skip_without())
