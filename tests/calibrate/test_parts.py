"""The parts of a calibration on a box made of numbers: known truths are found again; a new part is one module."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simnmt.calibrate import parts as parts_room
from simnmt.calibrate.calibration import measure
from simnmt.calibrate.energy import EnergyMeter
from simnmt.calibrate.harness import rounds
from simnmt.calibrate.parts import Bench
from simnmt.calibrate.parts import energy as energy_part
from simnmt.calibrate.parts import model_memory as memory_part
from simnmt.calibrate.parts.corrections import fit_padding, fit_sources, padding_cases, source_cases
from simnmt.calibrate.parts.step import fit as fit_steps
from simnmt.calibrate.parts.step import fit_grid, gap_overheads
from simnmt.calibrate.settings import Settings
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.engine import load_engine
from simnmt.nmt.errors import OutOfMemory
from simnmt.nmt.models import build_model
from simnmt.profile.blocks import EncoderBlock, Overhead, StepBlock
from tests.calibrate.conftest import Measured
from tests.calibrate.engines import QUICK, FakeEngine
from tests.nmt.tiny import GRU

REFILL = (0.0007, 2e-5, 0.0003, 1e-5)
"""Of joining and of leaving, fixed and for each sentence."""
STEPS = Settings("gru", parts=("step",), max_batch=32)
Parts = Callable[..., Measured]


# Rounds of executions and steps.


def test_each_cell_is_timed_in_each_round_and_the_engine_is_warm_before(parts: Parts) -> None:
    """The first calls of every batch size are ten times too slow, and nobody notices."""
    met: dict[int, int] = {}

    class Cold(FakeEngine):
        def run(self, work: Any) -> Any:
            met[work.batch] = met.get(work.batch, 0) + 1
            self._disturbance = lambda _: 10.0 if met[work.batch] <= 2 else 1.0
            return super().run(work)

    frame = parts(QUICK, Cold(noise=0.0)).frame
    assert set(frame.groupby("case").size()) == {3} and not frame["disturbed"].any()
    cells_s = frame.groupby(["cell", "src_len", "tgt_len", "batch"])["seconds"]
    assert (cells_s.max() / cells_s.min()).max() == pytest.approx(1.0)


# Gaps between steps.


def gaps(measured: Measured) -> dict[str, Overhead]:
    return gap_overheads(measured.rows("step"), measured.rows("encoder"))


def test_the_gap_grows_with_the_batch_and_holds_nothing_that_happens_once(parts: Parts) -> None:
    """A call takes 3 ms once: over 64 steps a fifth of the gap, had it stayed in."""
    overheads = gaps(parts(STEPS, noise=0.0, gap_s=0.0002, gap_s_per_sentence=3e-5))
    assert overheads["step_gap_s"].value == pytest.approx(0.0002, rel=1e-6)
    assert overheads["step_gap_s_per_sentence"].value == pytest.approx(3e-5, rel=1e-6)
    assert overheads["step_gap_s"].heldout_error == pytest.approx(0.0, abs=1e-9)


# Joining and leaving.


def test_refilling_is_measured_up_to_the_largest_batch(parts: Parts) -> None:
    engine = FakeEngine(refill_s=REFILL)
    overheads = parts(STEPS, engine).bench.blocks["overheads"]
    assert overheads["refill_s_fixed"].value == pytest.approx(0.0007)
    assert overheads["refill_s_per_sentence"].value == pytest.approx(3e-5), "each leaves as it joined"
    assert overheads["leave_s"].value == pytest.approx(0.0003), "in each step with which some leave"
    assert set(engine.joinings) == {(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 0)}, "never more than the batch"


# Padding and long sources.


def token_s(batch: int) -> float:
    return 0.0001 + 2e-5 * batch


CELLS = [(batch, src_len, 0.001 + src_len * token_s(batch)) for batch in (1, 8, 32) for src_len in (4, 12, 100)]
STEP = fit_grid(StepBlock, [1, 8, 32, 64], [0] * 4, [1.0, 2.0, 3.0, 4.0])
ENCODER = fit_grid(EncoderBlock, *zip(*CELLS, strict=True))


class Encoding(FakeEngine):
    """Pays a share of the padding; what each token of the source costs is summed one by one."""

    def __init__(self, share: float) -> None:
        super().__init__(architecture={"kind": "gru"})
        self._share = share

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        packed_s = sum(token_s(sum(src_len >= at for src_len in src_lens)) for at in range(1, max(src_lens) + 1))
        padded_s = max(src_lens) * token_s(len(src_lens))
        return 0.001 + packed_s + self._share * (padded_s - packed_s)


def bench(engine: FakeEngine, **keys: Any) -> Bench:
    """Return the bench after steps and encoders were fitted."""
    return Bench(Settings("gru", parts=("step",), **keys), engine, blocks={"step": STEP, "encoder": ENCODER})


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_the_padding_that_is_paid_is_found(share: float) -> None:
    measured = bench(Encoding(share))
    cases = padding_cases(measured)
    assert list(cases) == [8, 32]
    assert fit_padding(rounds(cases, 1), measured)["encoder"].padding_share == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("attention_s", [0.0, 2e-6])
def test_what_long_sources_add_is_found_on_a_box_with_neighbours(attention_s: float) -> None:
    """A third of the time twice as slow, and every tenth step once more, where the truth is 1 % to 6 % of a step."""
    box = FakeEngine(
        noise=0.001,
        growth=0.0,
        attention_s=attention_s,
        disturbance=lambda call: (2.0 if call // 12 % 3 == 2 else 1.0) * (1.5 if call % 10 == 3 else 1.0),
    )
    measured = bench(box)
    step = fit_sources(rounds(source_cases(measured), 6), measured)["step"]
    assert step.s_per_row_src_token == pytest.approx(attention_s, rel=0.05, abs=5e-8)


def test_without_memory_for_any_case_nothing_is_fitted(parts: Parts) -> None:
    class Full(FakeEngine):
        def run(self, work: Any) -> Any:
            raise OutOfMemory("full")

        in_turn_s = run

    measured = bench(Full())
    frame = rounds(source_cases(measured), 2)
    assert fit_sources(frame, measured) == fit_steps(frame, measured) == {} and len(measured.remarks) == 2


# Beside the model.


class Burning(FakeEngine):
    """Draws 50 W while it works and 10 W at rest, on a clock that nothing else moves."""

    def __init__(self) -> None:
        super().__init__(noise=0.0)
        self.now_s = self.joules = 0.0

    def rest(self, seconds: float) -> None:
        self.now_s, self.joules = self.now_s + seconds, self.joules + 10.0 * seconds

    def run(self, work: Any) -> Any:
        timing = super().run(work)
        self.rest(timing.total_s)
        self.joules += 40.0 * timing.total_s
        return timing


def energy_of(monkeypatch: pytest.MonkeyPatch, engine: Burning, total_j: Callable[[], float]) -> Bench:
    """Measure the energy of an engine with this meter, whose counter is coarse."""
    meter = EnergyMeter("rapl", "the package", 0.1, total_j)
    monkeypatch.setattr(energy_part, "find_energy_meter", lambda device: (meter, ""))
    monkeypatch.setattr(energy_part, "time", SimpleNamespace(sleep=engine.rest, perf_counter=lambda: engine.now_s))
    costs = Bench(replace(QUICK, parts=("energy",)), engine)
    measure(costs, None)
    return costs


def test_power_at_rest_and_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Burning()
    block = energy_of(monkeypatch, engine, lambda: engine.joules).blocks["energy"]
    assert block.idle_w == pytest.approx(10.0)
    assert block.active_w == pytest.approx(50.0)
    assert engine.now_s < 30.0, "a coarse counter makes no quick calibration slow"


@pytest.mark.parametrize("fails_after", [0, 1, 3, 7])
def test_a_counter_that_fails_gives_no_energy_and_never_0(monkeypatch: pytest.MonkeyPatch, fails_after: int) -> None:
    readings = iter(range(fails_after))
    assert energy_of(monkeypatch, Burning(), lambda: float(next(readings))).blocks["energy"] is None


# A further quantity.

TOY = '''
"""Seconds of hanging up, of no engine in particular."""

from simnmt.calibrate.harness import Case, counted
from simnmt.calibrate.parts import Part
from simnmt.profile.blocks import Overhead


def cases(bench):
    return {"hang up": Case(lambda: {"seconds": 0.25})}


def fit(frame, bench):
    return {"overheads": {"hang_up_s": Overhead(value=counted(frame)["seconds"].median(), kind="measured")}}


PARTS = (Part("hanging up", ("overheads",), cases, fit, order=99, rounds=lambda bench: 3),)
'''


def test_a_further_quantity_is_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging_up.py").write_text(TOY)
    monkeypatch.setattr(parts_room, "__path__", [*parts_room.__path__, str(tmp_path)])
    costs = Bench(replace(QUICK, parts=("overheads",)), FakeEngine())
    measure(costs, None)
    assert costs.blocks["overheads"]["hang_up_s"].value == 0.25
    monkeypatch.delitem(sys.modules, f"{parts_room.__name__}.hanging_up")


# The memory of the model.

SIZES = {"src_vocab": 50_000, "tgt_vocab": 50_000}


@pytest.mark.deep
def test_a_model_takes_the_memory_of_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may keep what loading needed besides."""
    monkeypatch.setattr(memory_part, "QUICK_LOADS", 1)
    architecture = GRU.model_copy(update=SIZES)
    model = build_model(architecture)
    save_checkpoint(tmp_path, model, architecture)
    settings = replace(QUICK, model=str(tmp_path), parts=("model_memory",))
    with closing(load_engine(settings.model, threads=1)) as engine:
        costs = Bench(settings, engine)
        measure(costs, None)
    block = costs.blocks["model_memory"]
    assert 0.9 < block.resident_bytes / sum(weight.nbytes for weight in model.parameters()) < 2.5
    assert block.kind == "measured" and 0.0 < block.load_s < 10.0


def test_a_model_that_no_second_process_can_load_spoils_nothing_else(tmp_path: Path) -> None:
    missing = FakeEngine(architecture=GRU.model_dump(mode="json"))
    costs = Bench(replace(QUICK, model=str(tmp_path / "gone.json"), parts=("model_memory",)), missing)
    measure(costs, None)
    assert costs.blocks["model_memory"] is None
    [remark] = costs.remarks
    assert "gone.json" in remark


def hang(*_: Any) -> None:
    time.sleep(60.0)


def test_a_process_that_never_ends_its_load_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_part, "report_load", hang)
    monkeypatch.setattr(memory_part, "MOST_LOAD_S", 0.05)
    settings, begin_s = replace(QUICK, model=str(tmp_path / "gone.json")), time.monotonic()
    load = memory_part.load_in_fresh_process(settings, GRU.model_dump(mode="json"))
    assert load["seconds"] is None and load["fault"] and time.monotonic() - begin_s < 50.0
