"""Verdicts on elastic pipelining by studies of which the answer is known (STI-22 to 25, 27)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, ClaimRecord
from simnmt.papers.sti.comparison import compare
from simnmt.papers.sti.study import PLANNED, Outcome, Point, Study, packed_correct
from simnmt.papers.sti.study_claims import CLAIMS, claim_records, study_claims
from tests.papers.sti_stand_ins import EXAMPLES, study

HARD = np.random.default_rng(7).permutation(EXAMPLES)
"""Examples in the order in which they get hard."""


def outcome(accuracy: float, shift: int = 0) -> Outcome:
    """The easiest examples right; `shift`: others instead of so many of them."""
    right = np.zeros(EXAMPLES, bool)
    right[np.roll(HARD, shift)[: round(accuracy * EXAMPLES)]] = True
    return Outcome(accuracy=float(right.mean()), log_likelihood=-0.5, agreement=0.9, correct=packed_correct(right))


def graded(accuracy: Callable[[Point], float], shift: Callable[[Point], int] = lambda _: 0) -> Study:
    """The study with other answers in its grid."""
    measured = study()
    grid = [point.model_copy(update={"outcome": outcome(accuracy(point), shift(point))}) for point in measured.grid]
    return measured.model_copy(update={"grid": tuple(grid)})


def records(graded_study: Study, identifier: str) -> list[ClaimRecord]:
    """The records of one claim, one for each device."""
    return claim_records(next(claim for claim in CLAIMS if claim.identifier == identifier), graded_study)


def verdicts(graded_study: Study, identifier: str) -> set[str]:
    """The verdicts on one claim over devices."""
    return {record.verdict for record in records(graded_study, identifier)}


def test_a_gain_is_the_mean_over_deadlines_of_the_same_examples_with_its_interval() -> None:
    """STI-22: 3 points under every deadline are 3 points, and clear, as no example is answered otherwise."""
    measured = graded(lambda point: 0.80 if point.method in PLANNED else 0.77)
    for device in measured.devices:
        gain = compare(measured, device, "STI", "StdPL-6").gain
        assert gain.difference == pytest.approx(0.03) and 0.01 < gain.low < gain.high < 0.05
    assert verdicts(measured, "STI-22 (d)") == {HOLDS}


def test_a_difference_that_noise_may_explain_is_not_distinguishable() -> None:
    measured = graded(lambda point: 0.80, shift=lambda point: 40 if point.method in PLANNED else 0)
    assert verdicts(measured, "STI-22 (a)") == {UNCLEAR}


def test_a_plan_that_is_worse_fails_and_its_deadlines_are_listed() -> None:
    measured = graded(lambda point: 0.70 if point.method == "STI" and point.deadline_share == 0.4 else 0.80)
    judged = records(measured, "STI-22 (c)")
    assert {record.verdict for record in judged} == {FAILS}
    assert all("less accurate at 40 %" in record.why for record in judged)


@pytest.mark.parametrize(("lost", "expected"), [(0.0025, {HOLDS}), (0.05, {FAILS}), (0.01, {UNCLEAR})])
def test_within_a_point_of_the_model_in_memory_needs_an_interval_that_is(lost: float, expected: set[str]) -> None:
    measured = graded(lambda point: 0.80 - (lost if point.method in PLANNED else 0.0))
    assert verdicts(measured, "STI-22 (e)") == expected


def late(point: Point, *methods: str) -> Point:
    """The point, missing its deadline where its method is one of these and the deadline is tight."""
    return point.model_copy(update={"misses": point.method in methods and point.deadline_share < 0.3})


def test_accuracies_are_compared_where_both_sides_are_in_time() -> None:
    """Errata to STI-22: a plan that ends late may compute more than one that keeps its deadline."""
    measured = graded(lambda point: 0.60 if point.method in PLANNED and point.deadline_share < 0.3 else 0.80)
    assert verdicts(measured, "STI-22 (c)") == {FAILS}
    kept = measured.model_copy(update={"grid": tuple(late(point, *PLANNED) for point in measured.grid)})
    judged = records(kept, "STI-22 (c)")
    assert {record.verdict for record in judged} == {HOLDS}
    assert all(record.ours.startswith("in time: +0.00 points") for record in judged)
    assert all("2 of 4 deadlines" in record.ours for record in judged)
    assert all("late answers included -10.00 points" in record.why for record in judged)


def test_the_plan_that_may_wait_is_judged_beside_the_published_one() -> None:
    """The weaker of the two verdicts counts."""
    measured = graded(lambda point: 0.60 if point.method == "STI, waiting" else 0.80)
    measured = measured.model_copy(update={"grid": tuple(late(point) for point in measured.grid)})
    judged = records(measured, "STI-22 (c)")
    assert {record.verdict for record in judged} == {FAILS}
    assert all("allowed to wait until the deadline: -20.00 points" in record.ours for record in judged)


def test_no_verdict_if_the_two_methods_are_never_in_time_together() -> None:
    measured = study()
    measured = measured.model_copy(update={"grid": tuple(point.model_copy(update={"misses": True}) for point in measured.grid)})
    assert verdicts(measured, "STI-22 (c)") == {UNKNOWN}


def test_a_late_plan_breaks_the_claim_on_deadlines_only_where_the_model_in_memory_is_in_time() -> None:
    measured = study()
    assert verdicts(measured, "STI-22 (f)") == {HOLDS, FAILS}
    late = [point.model_copy(update={"misses": point.method != "STI"}) for point in measured.grid]
    assert verdicts(measured.model_copy(update={"grid": tuple(late)}), "STI-22 (f)") == {HOLDS}


def test_the_buffer_and_tight_deadlines_are_judged_by_halves_of_the_grid() -> None:
    buffered = graded(lambda point: 0.8 if point.preload_share else 0.7)
    assert verdicts(buffered, "STI-24 (d)") == {HOLDS}
    assert verdicts(graded(lambda point: 0.8), "STI-24 (d)") == {UNCLEAR}
    tight = graded(lambda point: 0.8 if point.method == "STI" else 0.8 - 0.2 * (point.deadline_share < 0.3))
    assert verdicts(tight, "STI-24 (g)") == {HOLDS}
    loose = graded(lambda point: 0.8 if point.method == "STI" else 0.8 - 0.2 * (point.deadline_share > 0.3))
    assert verdicts(loose, "STI-24 (g)") == {FAILS}


def test_memory_operations_shapes_and_busy_times_are_judged_by_the_plans() -> None:
    """STI-23 to 25."""
    measured = study()
    assert verdicts(measured, "STI-23 (c)") == {HOLDS} and verdicts(measured, "STI-24 (a)") == {HOLDS}
    assert verdicts(measured, "STI-24 (b)") == {HOLDS} and verdicts(measured, "STI-24 (c)") == {HOLDS}
    assert verdicts(measured, "STI-24 (h)") == {HOLDS} and verdicts(measured, "STI-25") == {HOLDS}
    greedy = [point.model_copy(update={"held_bytes": 10**6}) for point in measured.grid]
    assert verdicts(measured.model_copy(update={"grid": tuple(greedy)}), "STI-23 (c)") == {FAILS}
    alike = measured.model_copy(
        update={"devices": measured.devices[:1], "grid": tuple(p for p in measured.grid if "1 MB" in p.device)}
    )
    assert verdicts(alike, "STI-24 (h)") == {UNKNOWN}


def test_memory_beside_the_buffer_is_stated_with_the_shards_that_are_read() -> None:
    """STI-23: what is unpacked is not all; compressed shards lie beside it until the execution ends."""
    reasons = [record.why for record in records(study(), "STI-23 (c)")]
    assert reasons and all("one layer in float32" in why and "compressed shards" in why for why in reasons)


def test_importance_is_compared_with_the_mean_of_random_orders() -> None:
    """STI-24: the stand-in's shards are worth what the order says."""
    measured = study()
    assert verdicts(measured, "STI-24 (e)") == {HOLDS} and verdicts(measured, "STI-24 (f)") == {HOLDS}
    swapped = [case.model_copy(update={"best": case.base, "random": (case.best,)}) for case in measured.upgrades]
    assert verdicts(measured.model_copy(update={"upgrades": tuple(swapped)}), "STI-24 (e)") == {FAILS}
    same = [case.model_copy(update={"random": (case.best, case.best)}) for case in measured.upgrades]
    assert verdicts(measured.model_copy(update={"upgrades": tuple(same)}), "STI-24 (e)") == {HOLDS}


def test_accuracy_must_rise_with_fidelity() -> None:
    """STI-27."""
    assert verdicts(study(), "STI-27") == {HOLDS}
    assert verdicts(study(flat=True, parts=("uniform",)), "STI-27") == {UNCLEAR}


def test_claims_name_the_part_that_was_not_measured() -> None:
    judged = study_claims(study(parts=("uniform",)))
    lacking = [record for record in judged if record.verdict == UNKNOWN]
    assert len(judged) - len(lacking) == 1 and all("the study has no part" in record.why for record in lacking)
    assert all(record.verdict == UNKNOWN and "--study" in record.why for record in study_claims(None))
