"""A run on two networks under five policies, whose names try to break out of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

import simnmt
from simnmt.report.figures import CellView
from simnmt.results.places import ALL, CellName, Place
from simnmt.results.requests import RequestLog
from tests.browser import open_file


@dataclass(frozen=True, slots=True)
class OneVisit:
    """A browser that opens all pages in one context: a page in a context of its own takes half as long again."""

    visit: Any

    @contextmanager
    def new_context(self, *, offline: bool, viewport: dict[str, int], color_scheme: str = "light") -> Iterator[Any]:
        """What has one new page, and closes it at the end."""
        assert offline, "the shared context is"
        page = self.visit.new_page()
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=color_scheme)
        try:
            yield SimpleNamespace(new_page=lambda: page)
        finally:
            page.close()


@pytest.fixture(scope="session")
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """`with open_page(path, viewport=..., color_scheme=...) as opened:` as in tests/browser.py."""
    with chromium.new_context(offline=True) as visit:
        yield lambda path, **settings: open_file(OneVisit(visit), path, **settings)


HOSTILE = "<script>alert(1)"
WORKLOAD = '"&amp;<img src=x onerror=alert(2)>'
NETWORKS = (HOSTILE, "cp2")
POLICIES = ("edge", "cloud", "oracle", "naive", "cnmt")


def make_result(
    requests: int = 20_000,
    networks: tuple[str, ...] = NETWORKS,
    workloads: tuple[str, ...] = (WORKLOAD,),
    replications: int = 5,
    **keys: Any,
) -> Any:
    """A run back to back under five policies, with names that try to break out of the page."""
    result = simnmt.run(
        {
            "version": 1, "name": HOSTILE, "requests": requests, "replications": replications,
            "workloads": {name: {"lengths": "@de-en-news"} for name in workloads},
            "networks": {name: {"rtt": "@cp2" if name == "cp2" else "@cp1"} for name in networks},
            "devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}},
            "policies": {name: {} for name in POLICIES}, **keys,
        }
    )  # fmt: skip
    cells = [replace(cell, profile_names=("tx2-<b>", "titan-xp")) for cell in result.cells]
    return replace(result, cells=cells, notes=["Target lengths are those of the <b>reference</b> translations."])


def make_mix(sites: tuple[str, ...] = ("berlin", HOSTILE), **keys: Any) -> Any:
    """A run of one network whose rows are those of all requests, of each site and of two workloads."""
    result = make_result(networks=("n",), workloads=(ALL,), **keys)
    groups = [(ALL, ALL), *((site, ALL) for site in sites), (ALL, "news"), (ALL, WORKLOAD)]
    rows = [row | {"site": site, "workload": workload} for site, workload in groups for row in result.summary_rows]
    parts = [{**Place.of(row)._asdict(), "slo_met": row["site"] != HOSTILE} for row in rows[len(POLICIES) :]]
    sources = tuple(
        replace(result.cells[0], site=site, workload=name, logs={}) for site in sites for name in ("news", WORKLOAD)
    )
    cells, recommendations = [replace(result.cells[0], sources=sources)], [result.recommendations[0] | {"parts": parts}]
    return replace(result, summary_rows=rows, recommendations=recommendations, cells=cells)


@pytest.fixture(scope="session")
def result() -> Any:
    return make_result()


@pytest.fixture(scope="session", name="make_result")
def _make_result() -> Any:
    return make_result


def with_quality(result: Any) -> Any:
    """The same run as of scored policies."""
    chrf = ({"chrf": 50.0 + at, "chrf_low": 49.0 + at, "chrf_high": 52.0 + at} for at in range(len(result.summary_rows)))
    return replace(result, summary_rows=[row | of_row for row, of_row in zip(result.summary_rows, chrf, strict=True)])


def view_of(cell: Any, rows: Any = ()) -> CellView:
    """A cell as its figures see it, with a colour for each policy."""
    here = [row for row in rows if CellName.of(row) == cell.name]
    return CellView(cell, here, {policy: place for place, policy in enumerate(cell.logs)})


def with_log(cell: Any, **columns: Any) -> Any:
    """The same cell with columns of every log replaced."""
    return replace(cell, logs={name: RequestLog({**log, **columns}) for name, log in cell.logs.items()})
