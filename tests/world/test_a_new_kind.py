"""A kind of execution that simnmt does not ship: one class, and it runs, is planned, and stands in the log and on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.devices import KINDS, Fifo, Kind
from simnmt.devices.device import COMPLETES, Arrival, Clock, Execution
from simnmt.results.requests import Requests
from simnmt.world.structures import library

TICK_S = 0.25


class Ticking(Fifo):
    """Boxes without workers that begin any number of requests, but only at ticks."""

    name = "ticking"

    def device(self, clock: Clock, target: int, requests: Requests, trail: Any, first_box: int) -> TickingDevice:
        return TickingDevice(self, clock, requests.execution_s[target].tolist())


class TickingDevice:
    def __init__(self, kind: Kind, clock: Clock, execution_s: Sequence[float]) -> None:
        self.boxes, self._clock, self._execution_s = [None] * kind.boxes, clock, execution_s

    def enter(self, execution: Execution) -> None:
        self._clock.process(self._execute(execution))

    def _execute(self, execution: Execution) -> Iterator[Any]:
        begin_s = ceil(self._clock.now / TICK_S) * TICK_S
        yield self._clock.moment(begin_s, COMPLETES, execution.request)
        execution.begin(begin_s)
        yield self._clock.moment(begin_s + self._execution_s[execution.request], COMPLETES, execution.request)
        execution.end(self._clock.now)

    def wait_s(self, arrivals: Sequence[Arrival]) -> float:
        entry_s = arrivals[-1][0]
        return ceil(entry_s / TICK_S) * TICK_S - entry_s

    def state_view(self, box: int) -> None:
        return None

    def close(self) -> bool:
        return False

    def account(self) -> None:
        return None


@pytest.fixture
def scenario(make_scenario: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(KINDS, "ticking", Ticking)
    scenario = make_scenario(requests=200, replications=2, policies={"oracle": {}, "cloud": {}, "cnmt": {}})
    scenario["workloads"]["de-en"]["arrivals"] = {"kind": "poisson", "rate_rps": 4.0}
    scenario["devices"]["cloud"]["execution"] = "ticking"
    return scenario


def test_it_runs_and_stands_in_the_log_and_on_the_page(scenario: dict[str, Any], tmp_path: Path) -> None:
    result = simnmt.run(scenario, out=tmp_path / "run", jobs=1)
    log = result.requests.query("policy == 'cloud'")
    begin_s = log["arrival_s"] + log["t_tx_s"] / 2 + log["t_queue_s"]
    np.testing.assert_allclose(begin_s / TICK_S, np.round(begin_s / TICK_S), atol=0.05)
    assert log["t_queue_s"].mean() == pytest.approx(TICK_S / 2, rel=0.2)
    assert set(result.engines.values()) == {"reference"}
    if library() is not None:  # else the reason is that nothing was compiled
        assert "ticking" in result.engine_reasons["cnmt"]
        assert "ticking" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    scenario["devices"]["gateway"]["execution"] = "ticking"
    log = simnmt.run(scenario | {"policies": {"edge": {}}}, jobs=1).requests
    np.testing.assert_allclose(np.mod((log["arrival_s"] + log["t_queue_s"]) / TICK_S + 0.5, 1.0), 0.5, atol=0.05)


def test_it_is_planned(scenario: dict[str, Any]) -> None:
    plan = simnmt.plan(scenario, "p95_ms<=2000", overrides=["policies={cloud: {}}"], requests=300, precision=0.2)
    assert "cloud" in str(plan)


@pytest.mark.parametrize("name", ["tickling", "batch"])
def test_an_unknown_kind_is_refused_with_its_place(scenario: dict[str, Any], name: str) -> None:
    scenario["devices"]["cloud"]["execution"] = name
    with pytest.raises(InputError, match=r"devices\.cloud\.execution"):
        simnmt.run(scenario)
