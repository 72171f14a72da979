"""Energy and money as a run shows them: on its page, on the terminal and in its notes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import simnmt
from simnmt.cli.run_text import format_result
from simnmt.report.page import render
from simnmt.report.run_tables import energy_table


@pytest.fixture
def priced(make_scenario: Callable[..., dict[str, Any]]) -> simnmt.Run:
    scenario = make_scenario(policies={"edge": {}, "cloud": {}, "cnmt": {}})
    scenario["devices"]["gateway"]["power"] = {"idle_w": 5, "busy_w": 15}
    scenario["devices"]["cloud"] |= {"power": {"idle_w": 100, "busy_w": 150}, "price_per_hour": 3, "workers": 4}
    scenario["networks"]["cp1"]["joules_per_byte"] = 1e-4
    return simnmt.run(scenario, requests=200, replications=2)


def test_a_page_shows_joules_and_money_of_each_policy(priced: simnmt.Run) -> None:
    page, row = render(priced), priced.summary_rows[1]
    for key in ("mean_energy_j", "mean_static_j", "mean_dynamic_j", "mean_transfer_j", "mean_cost"):
        assert len(re.findall(f'data-column="{key}"', page)) == 3
    table = energy_table(priced.summary_rows)
    assert table is not None
    line = next(line for lines in table.lines.values() for line in lines if line.name.text == row["policy"])
    assert line.cells[0].value == pytest.approx(row["mean_energy_j"])


def test_the_terminal_has_a_table_of_them_with_the_columns_that_are_known(priced: simnmt.Run) -> None:
    text = format_result(priced)
    header = next(line for line in text.splitlines() if "static J" in line)
    assert "money" in header


def test_a_run_without_powers_and_prices_shows_nothing_of_them(make_scenario: Callable[..., dict[str, Any]]) -> None:
    result = simnmt.run(make_scenario(policies={"edge": {}}), requests=50, replications=1)
    page = render(result)
    assert 'data-table="energy' not in page and "static J" not in format_result(result)
    assert "Energy" not in " ".join(result.notes) and "energy" not in result.document()


def test_a_device_of_unknown_power_is_named_with_the_remedy(make_scenario: Callable[..., dict[str, Any]]) -> None:
    scenario = make_scenario(policies={"edge": {}})
    scenario["devices"]["gateway"]["power"] = {"idle_w": 5, "busy_w": 15}
    result = simnmt.run(scenario, requests=50, replications=1)
    assert any("the power of cloud" in note for note in result.notes)
