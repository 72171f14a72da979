"""Who else computes here."""

from __future__ import annotations

import pytest

from simnmt.calibrate import doctor, processor_use, profile_assembly
from simnmt.calibrate.box import BoxDescription


def box_of(cpus: int, allowed: int | None = None, quota: float | None = None) -> BoxDescription:
    numbers = () if allowed is None else tuple(range(allowed))
    return BoxDescription("x86_64", "Linux", logical_cores=cpus, allowed_cpus=numbers, cpu_quota=quota)


@pytest.mark.parametrize(("others", "busy"), [(0.3, False), (2.0, True)])
def test_a_box_is_busy_everywhere_by_the_same_cpus(monkeypatch: pytest.MonkeyPatch, others: float, busy: bool) -> None:
    """All of 16 CPUs, over which the work of others is counted, though this process may use two of them."""
    box = box_of(16, allowed=2, quota=2.0)
    monkeypatch.setattr("simnmt.calibrate.processor_use.others_cpus", lambda: others)
    assert box.usable_cpus == 2 and profile_assembly.state(box).busy is busy
    assert (doctor.load_finding(box, others).status == "warning") is busy


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
