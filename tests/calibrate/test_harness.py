"""The harness: interleaved rounds, what is disturbed, what is measured again, what is left out, and going on from a journal."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simnmt.calibrate.harness import MOST_ATTEMPTS, STRETCH_CALLS, Case, by_round, counted, ratio, rounds
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.errors import OutOfMemory


class Watch:
    """A box on which other processes use some CPUs."""

    def __init__(self, others: float | None = 0.0) -> None:
        self.others = others

    def others_cpus(self) -> float | None:
        return self.others


QUIET: Any = Watch
HEADER = {"settings": {"model": "gru", "beam": 1}, "box": {"cpu_model": "Abacus"}}


def taking(*script_s: float, then: float = 1.0) -> Callable[[], dict[str, float]]:
    """Return work that says how long it took: the seconds of the script, then `then`."""
    times = chain(script_s, repeat(then))
    return lambda: {"seconds": next(times)}


def case(run: Callable[[], object], **options: Any) -> Case:
    return Case(run, prepare=lambda: None, **options)


@pytest.fixture
def journal(tmp_path: Path) -> Callable[..., Journal]:
    def open_journal(header: dict[str, Any] = HEADER, **options: Any) -> Journal:
        return Journal(tmp_path / "j.jsonl", header, **options)

    return open_journal


def test_cases_alternate_after_one_untimed_call_and_the_first_one_changes() -> None:
    order: list[str] = []
    frame = rounds({name: partial(order.append, name) for name in "abc"}, 3, watch=QUIET)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert frame["case"].tolist() == list("abcbcacab") and (frame["seconds"] >= 0.0).all()


def test_untimed_calls_are_directly_before_the_timed_one() -> None:
    order: list[str] = []
    warm = Case(lambda: order.append("run"), before=lambda: order.append("flush"), warm=True, prepare=lambda: None)
    rounds({"a": warm}, 1, watch=QUIET)
    assert order == ["flush", "run"] * 2


def test_rounds_beyond_the_bound_are_left_out_but_not_the_first_ones() -> None:
    assert rounds({"a": case(taking())}, 9, within_s=5.0, watch=QUIET)["round"].nunique() == 5
    assert rounds({"a": case(taking())}, 9, within_s=0.1, watch=QUIET)["round"].nunique() == 3


def disturbed_rounds(frame: pd.DataFrame, attempt: int = 0) -> list[int]:
    rows = frame[(frame["attempt"] == attempt) & frame["disturbed"]]
    return sorted(set(rows["round"]))


def test_a_change_of_the_reference_disturbs_the_stretches_on_both_sides_and_these_alone_are_repeated() -> None:
    readings = [1.0] * 6 + [1.3] * 3  # three for each look: before, between rounds 1 and 2, between rounds 2 and 3
    frame = rounds({"a": case(taking())}, 6, reference=case(taking(*readings)), watch=QUIET)
    assert disturbed_rounds(frame) == [1, 2] and disturbed_rounds(frame, attempt=1) == []
    assert sorted(frame.loc[frame["attempt"] == 1, "round"]) == [1, 2]
    kept = counted(frame)
    assert kept["round"].tolist() and not kept["disturbed"].any() and len(kept) == 6


def test_a_stretch_beside_other_processes_is_measured_again() -> None:
    others = chain([0.0, 1e3], repeat(0.0))
    frame = rounds({"a": case(taking(1.0, 9.0)), "b": case(taking(1.0, 2.0))}, 3, watch=lambda: Watch(next(others)))  # type: ignore[arg-type, return-value]
    assert disturbed_rounds(frame) == [1]
    assert counted(frame).groupby("case")["seconds"].max().to_dict() == {"a": 1.0, "b": 1.0}


def test_a_box_that_stays_busy_is_not_measured_for_ever_and_its_rows_are_marked() -> None:
    frame = rounds({"a": case(taking(then=0.3))}, 4, watch=lambda: Watch(1e3))  # type: ignore[arg-type, return-value]
    assert frame["disturbed"].all() and frame["attempt"].max() < MOST_ATTEMPTS
    assert frame["seconds"].sum() <= 2 * 4 * 0.3 + 1e-9, "repeats take no longer than the first attempts"
    assert len(counted(frame)) == 4 and by_round(frame)["a"].tolist() == [0.3] * 4


def test_what_does_not_fit_into_memory_and_what_is_larger_is_left_out() -> None:
    called: list[int] = []

    def batch(size: int) -> None:
        called.append(size)
        if size > 4:
            raise OutOfMemory("no room")

    frame = rounds({size: Case(partial(batch, size), size=(size, 20)) for size in (1, 4, 8, 16)}, 3, watch=QUIET)
    assert 16 not in called and called.count(8) == 1
    assert set(frame.loc[frame["seconds"].isna(), "case"]) == {8, 16} and set(counted(frame)["case"]) == {1, 4}


def work(stop_at: int | None = None) -> tuple[dict[Any, Case], list[int]]:
    """Return 24 cases, and the list of their calls; call `stop_at` is interrupted."""
    calls: list[int] = []

    def run(number: int) -> dict[str, float]:
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        calls.append(number)
        return {"seconds": 0.1 + 0.01 * number}

    return {number: case(partial(run, number)) for number in range(24)}, calls


@pytest.mark.parametrize("stop_at", [0, 7, 10, 29, 71])
def test_interrupted_anywhere_at_most_one_stretch_is_measured_twice(journal: Callable[..., Journal], stop_at: int) -> None:
    def measured(cases: dict[Any, Case], kept: Journal | None) -> pd.DataFrame:
        return rounds(cases, 3, reference=case(taking()), journal=kept, name="cells", shuffle=1, watch=QUIET)

    once = measured(work()[0], None)
    first, calls = work(stop_at)
    kept = journal()
    with pytest.raises(KeyboardInterrupt):
        measured(first, kept)
    second, more_calls = work()
    pd.testing.assert_frame_equal(measured(second, journal()), once)
    assert len(calls) + len(more_calls) <= 72 + STRETCH_CALLS
    third, none = work(0)
    pd.testing.assert_frame_equal(measured(third, journal()), once)
    assert not none, "a journal that holds all needs no call"


def test_disturbed_rounds_count_for_no_ratio_where_there_are_others() -> None:
    rows = [
        (number, name, second, number == 2)
        for number in range(3)
        for name, second in (("a", 2.0 + 9 * (number == 2)), ("b", 1.0))
    ]
    frame = pd.DataFrame(rows, columns=["round", "case", "seconds", "disturbed"]).assign(attempt=0)
    assert ratio(frame, "a", "b") == 2.0


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_line_that_was_cut_short_is_dropped(journal: Callable[..., Journal], tmp_path: Path, cut: int) -> None:
    kept = journal()
    kept.finding("disk", 1)
    kept.finding("energy", {"j": 0.25})
    path = tmp_path / "j.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    again = journal()
    assert again.findings == {"disk": 1}
    again.finding("energy", None)
    assert journal().findings == {"disk": 1, "energy": None}


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ({**HEADER, "settings": {"model": "gru", "beam": 4}}, "settings.beam 1"),
        ({"settings": HEADER["settings"]}, 'box.cpu_model "Abacus"'),
        ({**HEADER, "journal": 1}, "version 2, this simnmt writes version 1"),
    ],
)
def test_a_journal_of_other_settings_or_of_another_version_is_refused_and_kept(
    journal: Callable[..., Journal], tmp_path: Path, header: dict[str, Any], key: str
) -> None:
    journal().finding("disk", 1)
    before = (tmp_path / "j.jsonl").read_bytes()
    with pytest.raises(CalibrationError, match=key):
        journal(header)
    assert (tmp_path / "j.jsonl").read_bytes() == before
    assert journal(header, replaces=True).findings == {}


@pytest.mark.parametrize("rest", ["", '\n["disk", 1]\n{', '\n[["disk"], 1]'], ids=["no journal", "a cut line", "no name"])
def test_a_file_that_is_no_journal_or_is_damaged_is_refused_and_kept(
    journal: Callable[..., Journal], tmp_path: Path, rest: str
) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text((json.dumps({"journal": 2, **HEADER}) if rest else '{"a": 1}') + rest + "\n")
    before = path.read_bytes()
    with pytest.raises(CalibrationError):
        journal()
    assert path.read_bytes() == before


def test_a_journal_without_findings_is_removed(journal: Callable[..., Journal], tmp_path: Path) -> None:
    journal().close()
    assert not list(tmp_path.iterdir())
