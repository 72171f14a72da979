"""What a reader of a profile is warned of."""

from __future__ import annotations

import pytest

from simnmt.calibrate import processor_use, profile_assembly
from simnmt.calibrate.box import BoxDescription

BOX = BoxDescription(machine="x86_64", system="Linux", logical_cores=2, load_average=(3.0, 1.0, 1.0), governor="performance")


@pytest.mark.parametrize(("others", "warned"), [(0.05, False), (1.5, True), (None, False)])
def test_a_box_is_busy_by_what_others_do_now_and_not_by_what_we_did_before(
    monkeypatch: pytest.MonkeyPatch, others: float | None, warned: bool
) -> None:
    """A load average of 3 is what our own last calibration leaves behind."""
    monkeypatch.setattr(processor_use, "others_cpus", lambda: others)
    state = profile_assembly.state(BOX)
    block = profile_assembly.conditions_block([state], state, None, [])
    assert (block.load_average, block.others_cpus) == (3.0, others)
    assert block.busy is warned
    message = "the box was busy: other programs used 1.5 CPUs before or after the run (repeat on a quiet box)"
    assert profile_assembly.busy_warnings([state, state], "the run") == ([message] if warned else [])
