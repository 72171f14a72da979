"""What a reader of a profile is warned of."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.calibrate import busy, conditions
from simnmt.calibrate.box import BoxDescription

BOX = BoxDescription(machine="x86_64", system="Linux", logical_cores=2, load_average=(3.0, 1.0, 1.0), governor="performance")


@pytest.mark.parametrize(("others", "warned"), [(0.05, False), (1.5, True), (None, False)])
def test_a_box_is_busy_by_what_others_do_now_and_not_by_what_we_did_before(
    monkeypatch: pytest.MonkeyPatch, others: float | None, warned: bool
) -> None:
    """A load average of 3 is what our own last calibration leaves behind."""
    monkeypatch.setattr(busy, "others_cpus", lambda: others)
    state = conditions.state(BOX)
    block = conditions.conditions_block([state], state, None, [])
    assert (block["load_average"], block["others_cpus"]) == (3.0, others)
    said = conditions.warnings(block, None, on_cpu=True)
    assert said == (["the box was busy: others used 1.5 CPUs before or after measuring"] if warned else [])


def test_a_sitting_of_an_older_journal_tells_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "others_cpus", lambda: 0.0)
    older = {"load_average": 0.1, "governor": None, "frequency_mhz": None}
    assert conditions.conditions_block([older], conditions.state(BOX), None, [])["others_cpus"] == 0.0


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ({"step": {"heldout_error": 0.245}, "encoder": None}, ["step: a held-out error of 24 %, above 10 % (measure again)"]),
        ({"disk": {"heldout_error": 0.3}, "encoder": {"heldout_error": 0.2}}, ["encoder: ", "the disk's cost"]),
        ({"execution": {"fit": {"level": 1.25}}}, ["the mean of the executions lies 25 % above"]),
        ({"step": {"heldout_error": None}, "disk": {"heldout_error": 0.1}, "execution": {"fit": {"level": 1.05}}}, []),
    ],
)
def test_costs_that_err_much_are_told(blocks: dict[str, Any], said: list[str]) -> None:
    found = conditions.fit_warnings(blocks)
    assert len(found) == len(said)
    assert all(line.startswith(begin) for line, begin in zip(found, said, strict=True))
