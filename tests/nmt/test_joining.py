"""What joining and leaving a real decoder takes, and that none stays."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from simnmt.nmt.decoder_timing import time_joining, time_steps_in_turn
from simnmt.nmt.engine import Work
from simnmt.nmt.engines import load_engine
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import load_model

TINY = {"kind": "gru", "layers": 1, "hidden": 8, "embedding": 8, "src_vocab": 20, "tgt_vocab": 20}


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("joining", "others", "beam"), [(1, 0, 1), (4, 0, 1), (3, 5, 1), (4, 4, 3)])
def test_joining_and_leaving_are_timed_apart_from_each_other_and_from_the_step(
    tiny: str, joining: int, others: int, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that advances by 1 s a join of guests and 0.25 s for each sentence that leaves, whatever steps take."""
    now = [0.0]
    from simnmt.nmt.slot_decoder import SlotDecoder

    join, step = SlotDecoder.join, SlotDecoder.step

    def slow_join(self: SlotDecoder, *given: object) -> object:
        now[0] += 1.0
        return join(self, *given)  # type: ignore[arg-type]

    def slow_step(self: SlotDecoder) -> object:
        done = step(self)
        now[0] += 7.0 + 0.25 * len(done)
        return done

    monkeypatch.setattr(SlotDecoder, "join", slow_join)
    monkeypatch.setattr(SlotDecoder, "step", slow_step)
    sources = [[5, 6, 3]] * (joining + others)
    took_s = time_joining(load_model(tiny).model, sources, joining, beam=beam, rounds=2, clock=lambda: now[0])
    assert took_s == pytest.approx((1.0, 0.25 * joining))


def test_an_engine_times_joining_and_still_runs(tiny: str) -> None:
    engine = load_engine(tiny, threads=1)
    join_s, leave_s = engine.joining_s(4, 2, src_len=5, beam=2, rounds=2)  # type: ignore[attr-defined]
    assert 0.0 < join_s < 1.0
    assert abs(leave_s) < 1.0
    assert len(engine.in_turn_s(Work(3, 5, 2), Work(9, 5, 2))) == 4  # type: ignore[attr-defined]
    assert 0.0 < engine.encoding_s([3, 1, 9]) < 10.0  # type: ignore[attr-defined]
    assert engine.run(Work(5, 3)).total_s > 0.0
    engine.close()
    with pytest.raises(NmtError, match="closed"):
        engine.joining_s(1, 0, src_len=5, beam=1, rounds=1)  # type: ignore[attr-defined]


def test_steps_of_two_batches_alternate_and_are_timed_separately(tiny: str) -> None:
    """On a clock whose span grows by 1 s from each step to the next: whoever goes first takes 1 s less."""
    now, model = (
        itertools.accumulate(itertools.chain.from_iterable((100, span) for span in itertools.count())),
        load_model(tiny).model,
    )
    pairs = time_steps_in_turn(model, [[5, 3]], [[5, 6, 7, 3]] * 2, steps=4, beam=2, clock=lambda: next(now))
    assert pairs == [(2, 3), (5, 4), (6, 7)], "the first of each is left out"


def test_torch_refills_its_batches_and_ctranslate2_does_not(tiny: str) -> None:
    from simnmt.calibrate.batch_corrections import TakesTurns
    from simnmt.calibrate.overheads import Joins
    from simnmt.nmt.ctranslate2_engine import CTranslate2Engine

    assert isinstance(load_engine(tiny, threads=1), Joins)
    assert isinstance(load_engine(tiny, threads=1), TakesTurns)
    assert not isinstance(object.__new__(CTranslate2Engine), Joins | TakesTurns)
