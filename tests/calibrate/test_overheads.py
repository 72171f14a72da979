"""Decisions, tokenisation, energy and pinning: what is measured beside the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simnmt.calibrate.overheads import decision_s, tokenisation_s
from simnmt.calibrate.parts import measure_energy
from simnmt.calibrate.settings import Settings
from simnmt.workload.length_units import tokeniser_in
from tests.calibrate.engines import FakeEngine


def ticking(steps_s: list[float]) -> Any:
    """A clock on which each timed span takes the next of these, over and over."""

    def readings() -> Iterator[float]:
        now = 0.0
        while True:
            for step_s in steps_s:
                yield now
                now += step_s
                yield now

    times = readings()
    return lambda: next(times)


def test_a_decision_costs_its_median_and_no_hiccup() -> None:
    assert decision_s(ticking([1e-6, 2e-6, 9e-3]), decisions=300) == pytest.approx(2e-6, rel=1e-3)


def test_a_real_decision_takes_microseconds_at_most() -> None:
    assert 1e-8 < decision_s(decisions=200) < 1e-4


@pytest.fixture(scope="module")
def tokeniser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import sentencepiece

    folder = tmp_path_factory.mktemp("model")
    words = [f"{first}{second}" for first in ("ba", "do", "ki", "lu") for second in ("ram", "tes", "vin", "wol")]
    text = [" ".join(words[(line * 7 + word * 3) % 16] for word in range(9)) for line in range(200)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=str(folder / "source"), vocab_size=32, minloglevel=2
    )
    return folder


def test_the_tokeniser_of_a_models_folder_is_found_and_timed(tokeniser: Path) -> None:
    path = tokeniser_in(tokeniser, "src")
    assert path == tokeniser / "source.model"
    per_token_s, fixed_s = tokenisation_s(path, seed=1) or (None, None)
    assert per_token_s is not None
    assert fixed_s is not None
    assert 0.0 <= per_token_s < 1e-3
    assert 0.0 <= fixed_s < 1e-2


def test_a_named_architecture_has_no_tokeniser() -> None:
    assert tokeniser_in("marian", "src") is None


class Meter:
    """Counts 10 W at rest; the engine's work adds 40 W."""

    source, scope, domains, resolution_s = "rapl", "the package", ("package-0",), 0.001

    def __init__(self, fails_after: int = 1_000) -> None:
        self.now_s = self.busy_s = 0.0
        self._reads, self._fails_after = 0, fails_after

    def read_j(self) -> float | None:
        self._reads += 1
        return None if self._reads > self._fails_after else 10.0 * self.now_s + 40.0 * self.busy_s

    def close(self) -> None: ...


class Burning(FakeEngine):
    """Its work takes time on the meter's clock."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(noise=0.0)
        self._meter = meter

    def run(self, work: Any) -> Any:
        timing = super().run(work)
        self._meter.now_s += timing.total_s
        self._meter.busy_s += timing.total_s
        return timing


def rest(meter: Meter) -> Any:
    def sleep(seconds: float) -> None:
        meter.now_s += seconds

    return sleep


def test_power_at_rest_and_at_work_and_joules_by_length() -> None:
    meter = Meter()
    engine = Burning(meter)
    block = measure_energy(engine, meter, Settings("gru", mode="quick"), sleep=rest(meter), clock=lambda: meter.now_s)
    assert block is not None
    assert block.idle_w == pytest.approx(10.0)
    assert block.active_w == pytest.approx(50.0)
    assert block.j_per_tgt_token == pytest.approx(50.0 * engine.plane[1], rel=0.06)
    assert block.heldout_error < 0.1


def test_a_coarse_counter_does_not_make_a_quick_calibration_slow() -> None:
    meter = Meter()
    meter.resolution_s = 0.1
    told: list[tuple[float, float]] = []
    listener = SimpleNamespace(say=None, measured=lambda part, done_s, left_s: told.append((done_s, left_s)))
    quick = Settings("gru", mode="quick")
    measure_energy(Burning(meter), meter, quick, sleep=rest(meter), clock=lambda: meter.now_s, listener=listener)
    assert meter.now_s < 30.0
    assert told[0][1] == pytest.approx(meter.now_s, rel=0.3)
    assert told[-1] == (pytest.approx(meter.now_s, rel=0.3), 0.0)


@pytest.mark.parametrize("fails_after", [0, 1, 3, 7])
def test_a_counter_that_fails_gives_no_energy_and_never_0(fails_after: int) -> None:
    meter = Meter(fails_after)
    found = measure_energy(Burning(meter), meter, Settings("gru", mode="quick"), sleep=rest(meter), clock=lambda: meter.now_s)
    assert found is None
