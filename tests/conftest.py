"""What tests of several rooms share: device profiles and small scenarios that need no shipped calibration."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from simnmt.base.errors import shorten
from simnmt.profile.device_profile import DeviceProfile, write_profile
from tests import optional_packages
from tests.browser import chromium, open_page
from tests.campaigns.harness import SCALE

# Otherwise each worker rewrites the assertions of 500 files anew (12 s), and each command compiles the package (0.7 s).
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples each time, and none too slow: a busy machine must not decide whether a property holds.
settings.register_profile(
    "steady", derandomize=True, deadline=None, max_examples=max(1, round(50 * SCALE if SCALE > 1.0 else 10 * SCALE))
)
settings.load_profile("steady")


# Of the class, which for functions is the test itself: a property is not to ask for a fixture of each example.
@pytest.fixture(scope="class", params=["compiled", "reference"])
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compute with compiled kernels, then with their references."""
    from simnmt.kernels.native_library import native, references

    if request.param == "compiled" and native() is None:
        pytest.skip("nothing was compiled: there was no C compiler")
    with references() if request.param == "reference" else nullcontext():
        yield


DEEP = pytest.StashKey[int]()
"""Number of tests and cases marked `deep` that a session leaves out."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return three workers for two cores: a quarter of the suite's time is spent waiting for timers, sockets and browsers."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


def pytest_configure(config: pytest.Config) -> None:
    """Skip the tests of optional packages that are not installed; collect no garbage while tests are, since little is any."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # else each worker computes on all cores, and waits for them by spinning
    gc.disable()
    if optional_packages.MISSING:
        config.pluginmanager.register(optional_packages)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests and cases that are marked `deep` to `make check-deep`."""
    if SCALE <= 1.0:
        left_out = [item for item in items if item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=left_out)
        config.stash[DEEP] = len(left_out)
        if hasattr(config, "workeroutput"):
            config.workeroutput["deep"] = len(left_out)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


def pytest_collection_finish() -> None:
    """Spare tests and libraries, a million objects that stay, every garbage collection (600 tests: 26 s, then 23)."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # with Python's own, parsing the package takes four times as long
    gc.enable()
    atexit.register(gc.unfreeze)  # else nanobind reports its objects as leaks


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Leave nothing to the five collections with which pytest ends."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep a worker's number of deep tests: all workers collect the same."""
    node.config.stash[DEEP] = getattr(node, "workeroutput", {}).get("deep", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests were skipped for which reason, the most frequent first, and how many deep ones were left out."""
    reports = terminalreporter.getreports("skipped")
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports if isinstance(report.longrepr, tuple))
    if reasons:
        counts = "; ".join(f"{count} {shorten(reason, 60)}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"skipped: {counts}")
    if left_out := terminalreporter.config.stash.get(DEEP, 0):
        terminalreporter.write_line(f"left out: {left_out} deep tests and cases, which `make check-deep` runs")


__all__ = ["chromium", "open_page"]
"""Fixtures for all rooms: one browser for each worker."""

GATEWAY_PLANE, CLOUD_PLANE = (0.001, 0.008, 0.010), (0.0002, 0.002, 0.005)
"""Seconds per source token, per target token, fixed: with an RTT of 80 ms each device wins some requests."""


@contextmanager
def hidden_loop(item: pytest.Item) -> Iterator[None]:
    """Hide the browser's event loop from a test without a browser: Playwright keeps it running between its own tests."""
    loop = asyncio._get_running_loop()
    if loop is None or "chromium" in getattr(item, "fixturenames", ()):
        yield
        return
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with hidden_loop(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with hidden_loop(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    # After the last test of all the browser itself is closed, in its loop.
    with nullcontext() if nextitem is None else hidden_loop(item):
        return (yield)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Give torch one thread: it takes every core otherwise, even for models of a few numbers."""
    from simnmt.nmt.devices import torch_threads

    with torch_threads(1):
        yield


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., DeviceProfile]:
    """Builds a synthetic profile of a plane, with any top-level block replaced."""

    def make(plane: tuple[float, float, float] = GATEWAY_PLANE, relative_sd: float = 0.1, **blocks: Any) -> DeviceProfile:
        content = {
            "schema_version": 2,
            "name": "box",
            "device": {"name": "a box"},
            "model": {"name": "a model", "vocab": 50_000},
            "length_unit": {"src": "word", "tgt": "word"},
            "valid_range": {"src_len": (0, 400), "tgt_len": (0, 400)},
            "execution": {
                "kind": "synthetic",
                "plane": dict(zip(("s_per_src_token", "s_per_tgt_token", "s_fixed"), plane, strict=True)),
                "residual_relative_sd": relative_sd,
            },
            "provenance": {"source": "made up", "date": "2026-01-01", "tool": "a test"},
        }
        return DeviceProfile.model_validate(content | blocks)

    return make


@pytest.fixture
def make_scenario(tmp_path: Path, make_profile: Callable[..., DeviceProfile]) -> Callable[..., dict[str, Any]]:
    """Builds a small scenario as a mapping, its profiles written to files; keywords replace top-level keys."""
    return small_scenarios(tmp_path, make_profile)


def small_scenarios(folder: Path, make_profile: Callable[..., DeviceProfile]) -> Callable[..., dict[str, Any]]:
    """Return what builds small scenarios with profiles in a folder: the fixture `make_scenario` for fixtures of any scope."""

    def make(relative_sd: float = 0.1, **keys: Any) -> dict[str, Any]:
        for name, plane in (("gateway", GATEWAY_PLANE), ("cloud", CLOUD_PLANE)):
            write_profile(folder / f"{name}.json", make_profile(plane, relative_sd, name=name))
        return {
            "version": 1,
            "name": "small",
            "seed": 7,
            "replications": 2,
            "requests": 2_000,
            "workloads": {"de-en": {"lengths": "@de-en-news"}},
            "networks": {"cp1": {"rtt": "@cp1"}},
            "devices": {
                "gateway": {"profile": str(folder / "gateway.json")},
                "cloud": {"profile": str(folder / "cloud.json")},
            },
            "fit": {"inferences": 500},
            "policies": {"edge": {}, "cloud": {}, "oracle": {}, "naive": {}, "cnmt": {}},
        } | keys

    return make
