"""What a source token adds to a decode step: a known truth is found under drift, and its error is told."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from simnmt.calibrate.batch_corrections import per_row_src_token_s, source_pairs
from simnmt.calibrate.settings import Settings
from tests.calibrate.engines import FakeEngine

SETTINGS = Settings("gru", parts=("step",))


@pytest.mark.parametrize("attention_s", [0.0, 2e-6])
def test_what_long_sources_add_is_found_on_a_box_with_neighbours(attention_s: float) -> None:
    """A third of the time twice as slow, and every tenth step once more, where the truth is 1 % to 6 % of a step."""
    box = FakeEngine(
        noise=0.001,
        growth=0.0,
        attention_s=attention_s,
        disturbance=lambda call: (2.0 if call // 12 % 3 == 2 else 1.0) * (1.5 if call % 10 == 3 else 1.0),
    )
    found = source_pairs(box, SETTINGS, 64)
    assert [(batch, more) for batch, more, _ in found] == [(8, 60), (32, 60), (64, 60)]
    value, note = per_row_src_token_s(found)
    assert value == pytest.approx(attention_s, rel=0.05, abs=5e-8)
    assert "of 138 pairs at least; fitted within" in note


def test_a_growth_of_steps_that_is_not_by_rows_shows_in_the_error() -> None:
    pairs = [(8, 60, [(1.0, 1.0)] * 3), (32, 60, [(1.0, 1.2)] * 3)]
    value, note = per_row_src_token_s(pairs)
    assert value is not None and 0.0 < value < 0.2 / (32 * 60)
    assert "0.0 % (0.0 % to 0.0 %) at batch 8, 20.0 % (20.0 % to 20.0 %) at batch 32" in note
    assert "fitted within 2.8 % of a step" in note


def test_a_shorter_step_under_long_sources_is_noise() -> None:
    assert per_row_src_token_s([(8, 60, [(1.0, 0.9)] * 3)])[0] == 0.0


@pytest.mark.parametrize(
    ("settings", "engine"),
    [({"mode": "quick"}, {}), ({"max_src_len": 20}, {}), ({}, {"tells_steps": False}), ({}, {"most_batch": 7})],
)
def test_without_longer_sources_or_steps_it_is_not_known_what_they_add(
    settings: dict[str, Any], engine: dict[str, Any]
) -> None:
    asked = Settings("gru", parts=("step",), **settings)
    assert per_row_src_token_s(source_pairs(FakeEngine(**engine), asked, 64)) == (None, "")


def test_what_has_no_room_is_left_out_and_a_slow_model_is_soon_done() -> None:
    assert [batch for batch, _, _ in source_pairs(FakeEngine(most_batch=40), SETTINGS, 64)] == [8, 32]
    seconds = count(step=30.0)
    ((_, _, pairs),) = source_pairs(FakeEngine(), SETTINGS, 8, clock=lambda: next(seconds))
    assert len(pairs) == 23
