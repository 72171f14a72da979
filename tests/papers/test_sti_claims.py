"""Verdicts on elastic pipelining by studies of which the answer is known (STI-22 to 25, 27)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, Records
from simnmt.papers.sti import comparison
from simnmt.papers.sti.study import Outcome, Point, Study, packed_correct
from simnmt.papers.sti.study_claims import accuracy_claims, fidelity_claims, resource_claims
from tests.papers.sti_stand_ins import EXAMPLES, study

HARD = np.random.default_rng(7).permutation(EXAMPLES)
"""Examples in the order in which they get hard."""


ROOMS: dict[Callable[[Study], Records], tuple[str, ...]] = {
    accuracy_claims: ("STI-22", "STI-24 (d)", "STI-24 (g)"),
    fidelity_claims: ("STI-24 (e)", "STI-24 (f)", "STI-27"),
    resource_claims: ("STI-23", "STI-24", "STI-25"),
}
"""Where each claim is judged; the first that fits."""


def outcome(accuracy: float, shift: int = 0) -> Outcome:
    """The easiest examples right; `shift`: others instead of so many of them."""
    right = np.zeros(EXAMPLES, bool)
    right[np.roll(HARD, shift)[: round(accuracy * EXAMPLES)]] = True
    return Outcome(accuracy=float(right.mean()), log_likelihood=-0.5, agreement=0.9, correct=packed_correct(right))


def graded(accuracy: Callable[[Point], float], shift: Callable[[Point], int] = lambda _: 0) -> Study:
    """The study with other answers in its grid."""
    own = study()
    grid = [point.model_copy(update={"outcome": outcome(accuracy(point), shift(point))}) for point in own.grid]
    return own.model_copy(update={"grid": tuple(grid)})


def verdicts(own: Study, bare: str) -> set[str]:
    """Of one claim, over devices."""
    room = next(each for each, claims in ROOMS.items() if bare.startswith(claims))
    return {record["verdict"] for record in room(own) if record["bare"] == bare}


def test_a_gain_is_the_mean_over_deadlines_of_the_same_examples_with_its_interval() -> None:
    """STI-22: 3 points under every deadline are 3 points, and clear, as no example is answered otherwise."""
    own = graded(lambda point: 0.80 if point.method in comparison.PLANNED else 0.77)
    for device in own.devices:
        found = comparison.gain(own, comparison.of(own, device, "STI"), comparison.of(own, device, "StdPL-6"))
        assert found is not None and found.difference == pytest.approx(0.03) and 0.01 < found.low < found.high < 0.05
    assert verdicts(own, "STI-22 (d)") == {HOLDS}


def test_what_noise_may_explain_is_not_distinguishable() -> None:
    own = graded(lambda point: 0.80, shift=lambda point: 40 if point.method in comparison.PLANNED else 0)
    assert verdicts(own, "STI-22 (a)") == {UNCLEAR}


def test_a_plan_that_is_worse_fails_and_its_deadlines_are_listed() -> None:
    own = graded(lambda point: 0.70 if point.method == "STI" and point.deadline_share == 0.4 else 0.80)
    records = [record for record in accuracy_claims(own) if record["bare"] == "STI-22 (c)"]
    assert {record["verdict"] for record in records} == {FAILS}
    assert all("less accurate at 40 %" in record["why"] for record in records)


@pytest.mark.parametrize(("lost", "expected"), [(0.0025, {HOLDS}), (0.05, {FAILS}), (0.01, {UNCLEAR})])
def test_within_a_point_of_the_model_in_memory_needs_an_interval_that_is(lost: float, expected: set[str]) -> None:
    own = graded(lambda point: 0.80 - (lost if point.method in comparison.PLANNED else 0.0))
    assert verdicts(own, "STI-22 (e)") == expected


def late(point: Point, *methods: str) -> Point:
    """The point, missing its deadline where its method is one of these and the deadline is tight."""
    return point.model_copy(update={"misses": point.method in methods and point.deadline_share < 0.3})


def test_accuracies_are_compared_where_both_sides_are_in_time() -> None:
    """Errata to STI-22: a plan that ends late may compute more than one that keeps its deadline."""
    own = graded(lambda point: 0.60 if point.method in comparison.PLANNED and point.deadline_share < 0.3 else 0.80)
    assert verdicts(own, "STI-22 (c)") == {FAILS}
    kept = own.model_copy(update={"grid": tuple(late(point, *comparison.PLANNED) for point in own.grid)})
    records = [record for record in accuracy_claims(kept) if record["bare"] == "STI-22 (c)"]
    assert {record["verdict"] for record in records} == {HOLDS}
    assert all(record["ours"].startswith("in time: +0.00 points") for record in records)
    assert all("2 of 4 deadlines" in record["ours"] for record in records)
    assert all("late answers included -10.00 points" in record["why"] for record in records)


def test_the_plan_that_may_wait_is_judged_beside_the_published_one() -> None:
    """The weaker of the two verdicts counts."""
    own = graded(lambda point: 0.60 if point.method == "STI, waiting" else 0.80)
    own = own.model_copy(update={"grid": tuple(late(point) for point in own.grid)})
    records = [record for record in accuracy_claims(own) if record["bare"] == "STI-22 (c)"]
    assert {record["verdict"] for record in records} == {FAILS}
    assert all("allowed to wait until the deadline: -20.00 points" in record["ours"] for record in records)


def test_nothing_is_judged_where_never_both_are_in_time() -> None:
    own = study()
    own = own.model_copy(update={"grid": tuple(point.model_copy(update={"misses": True}) for point in own.grid)})
    assert verdicts(own, "STI-22 (c)") == {UNKNOWN}


def test_a_late_plan_breaks_the_claim_on_deadlines_only_where_the_model_in_memory_is_in_time() -> None:
    own = study()
    assert verdicts(own, "STI-22 (f)") == {HOLDS, FAILS}
    late = [point.model_copy(update={"misses": point.method != "STI"}) for point in own.grid]
    assert verdicts(own.model_copy(update={"grid": tuple(late)}), "STI-22 (f)") == {HOLDS}


def test_the_buffer_and_tight_deadlines_are_judged_by_their_own_halves() -> None:
    buffered = graded(lambda point: 0.8 if point.preload_share else 0.7)
    assert verdicts(buffered, "STI-24 (d)") == {HOLDS}
    assert verdicts(graded(lambda point: 0.8), "STI-24 (d)") == {UNCLEAR}
    tight = graded(lambda point: 0.8 if point.method == "STI" else 0.8 - 0.2 * (point.deadline_share < 0.3))
    assert verdicts(tight, "STI-24 (g)") == {HOLDS}
    loose = graded(lambda point: 0.8 if point.method == "STI" else 0.8 - 0.2 * (point.deadline_share > 0.3))
    assert verdicts(loose, "STI-24 (g)") == {FAILS}


def test_memory_operations_shapes_and_busy_times_are_of_the_plans_themselves() -> None:
    """STI-23 to 25."""
    own = study()
    assert verdicts(own, "STI-23 (c)") == {HOLDS} and verdicts(own, "STI-24 (a)") == {HOLDS}
    assert verdicts(own, "STI-24 (b)") == {HOLDS} and verdicts(own, "STI-24 (c)") == {HOLDS}
    assert verdicts(own, "STI-24 (h)") == {HOLDS} and verdicts(own, "STI-25") == {HOLDS}
    greedy = [point.model_copy(update={"held_bytes": 10**6}) for point in own.grid]
    assert verdicts(own.model_copy(update={"grid": tuple(greedy)}), "STI-23 (c)") == {FAILS}
    alike = own.model_copy(update={"devices": own.devices[:1], "grid": tuple(p for p in own.grid if "1 MB" in p.device)})
    assert verdicts(alike, "STI-24 (h)") == {UNKNOWN}


def test_memory_beside_the_buffer_is_told_with_the_shards_that_are_read() -> None:
    """STI-23: what is unpacked is not all; compressed shards lie beside it until the execution ends."""
    told = [record["why"] for record in resource_claims(study()) if record["bare"] == "STI-23 (c)"]
    assert told and all("one layer in float32" in why and "compressed shards" in why for why in told)


def test_importance_is_held_against_the_mean_of_random_orders() -> None:
    """STI-24: the stand-in's shards are worth what the order says."""
    own = study()
    assert verdicts(own, "STI-24 (e)") == {HOLDS} and verdicts(own, "STI-24 (f)") == {HOLDS}
    swapped = [case.model_copy(update={"best": case.base, "random": (case.best,)}) for case in own.upgrades]
    assert verdicts(own.model_copy(update={"upgrades": tuple(swapped)}), "STI-24 (e)") == {FAILS}
    same = [case.model_copy(update={"random": (case.best, case.best)}) for case in own.upgrades]
    assert verdicts(own.model_copy(update={"upgrades": tuple(same)}), "STI-24 (e)") == {HOLDS}


def test_accuracy_rises_with_fidelity_or_the_proxy_is_none() -> None:
    """STI-27."""
    assert verdicts(study(), "STI-27") == {HOLDS}
    assert verdicts(study(flat=True, parts=("uniform",)), "STI-27") == {UNCLEAR}


def test_parts_that_were_not_measured_are_asked_for() -> None:
    own = study(parts=("uniform",))
    found = [*accuracy_claims(own), *resource_claims(own), *fidelity_claims(own)]
    lacking = [record for record in found if record["verdict"] == UNKNOWN]
    assert len(found) - len(lacking) == 1 and all("the study has no part" in record["why"] for record in lacking)
    none = [*accuracy_claims(None), *resource_claims(None), *fidelity_claims(None)]
    assert all(record["verdict"] == UNKNOWN and "--study" in record["why"] for record in none)
