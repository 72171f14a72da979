"""The benchmark of sweeps does what it says, on a tiny sweep."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import sweep
from benchmarks.process_costs import Cost


def test_the_ratio_is_that_of_the_sweep_to_its_units_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    alone_s = iter([9.0, 11.0])

    def cost(command: list[str]) -> Cost:
        commands.append(command)
        return Cost(wall_s=7.0, cpu_s=12.0, peak_mib=300.0)

    def units(arguments: list[str]) -> tuple[float, int]:
        assert not commands or len(commands) == 1
        return next(alone_s), 12

    monkeypatch.setattr(sweep, "cost", cost)
    monkeypatch.setattr(sweep, "units_in_a_process", units)
    figures: dict[str, Any] = sweep.measure(4, 3, 50, 2)
    assert (figures["cpu_ratio"], figures["units_alone_spread"], figures["peak_mib"]) == (1.2, 0.2, 300.0)
    assert commands[0][1:3] == ["sweep", "@open-loop"]


def test_the_units_alone_are_those_of_the_sweep() -> None:
    seconds, units = sweep.units_cpu_s(sweep.options(4, 2, 50))
    assert (units, seconds > 0.0) == (2 * 2 * 2, True)
