"""The iterations of a decoder-only model: costs that are known are found again, and other parts are left out."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.calibrate.calibration import measure
from simnmt.calibrate.parts import Bench
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.engine import Timing, Work
from simnmt.nmt.errors import OutOfMemory
from simnmt.profile.slots_block import SlotsBlock, SlotsCost
from tests.calibrate.engines import FakeEngine

COST = SlotsCost((0.004, 0.008, 0.009, 0.0095, 0.01), 3e-4, 2e-6, 0.001)
LLAMA = {"kind": "llama", "max_positions": 512}


class SlotsEngine(FakeEngine):
    """Takes the seconds of `COST`."""

    def run(self, work: Work) -> Timing:
        """See `Engine`."""
        if work.batch > self._most_batch:
            raise OutOfMemory("no room")
        read_s = COST.iterations_s(0, 0, 1, work.batch * work.src_len)
        contexts = [work.batch * (work.src_len + made) for made in range(1, work.tgt_len)]
        steps_s = tuple(COST.iterations_s(min(work.batch, 4), context, 1) for context in contexts)
        return Timing(COST.request_s + read_s + sum(steps_s), read_s, steps_s)


def bench_of(most_batch: int = 8, **settings: object) -> Bench:
    given = Settings("llama", mode="quick", threads=1, **settings)  # type: ignore[arg-type]
    return Bench(given, SlotsEngine(architecture=LLAMA, most_batch=most_batch))


def test_costs_of_slots_are_found_again_beside_the_plane_of_a_request_alone() -> None:
    bench = bench_of(parts=("execution", "step", "decoder"), max_batch=4)
    measure(bench, None)
    block = bench.blocks["slots"]
    assert isinstance(block, SlotsBlock)
    assert (block.slots, block.context, block.kind) == (4, 512, "measured")
    np.testing.assert_allclose(block.step_s, COST.step_s, rtol=1e-6)
    expected = pytest.approx((COST.s_per_prompt_token, COST.s_per_context_token, COST.request_s), rel=1e-6)
    assert (block.s_per_prompt_token, block.s_per_context_token, block.request_s) == expected
    assert block.heldout_error == pytest.approx(0.0, abs=1e-6)
    assert {"execution", "slots"} <= bench.blocks.keys()
    assert not {"step", "encoder", "decoder"} & bench.blocks.keys()


def test_an_iteration_has_a_token_for_each_of_many_slots() -> None:
    """The usual iteration has 512 tokens."""
    bench = bench_of(most_batch=1_024, parts=("step",), max_batch=1_024)
    measure(bench, None)
    block = bench.blocks["slots"]
    assert isinstance(block, SlotsBlock) and (block.slots, block.chunk) == (1_024, 1_024)
    assert block.notes == ("iterations of at most 1,024 tokens are assumed",)


def test_slots_that_do_not_fit_into_memory_make_no_block() -> None:
    bench = bench_of(most_batch=2, parts=("step",))
    measure(bench, None)
    assert bench.blocks["slots"] is None
    assert "4 slots could not be measured" in bench.remarks[0]


def test_parts_that_a_decoder_only_model_does_not_have_are_refused_alone() -> None:
    with pytest.raises(CalibrationError, match="decoder-only"):
        measure(bench_of(parts=("decoder",)), None)
