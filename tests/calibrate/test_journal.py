"""The journal that makes a calibration resumable."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from simnmt.calibrate.journal import Journal, journal_path
from simnmt.calibrate.samples import Reading, Sample
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.engine import Timing, Work
from simnmt.profile.origin import MeasuringConditions

HEADER = {"settings": {"model": "gru", "beam": 1, "parts": ("execution",)}, "box": {"cpu_model": "Abacus"}}
SAMPLES = [
    Sample("execution", 0, 0, 0, Work(2, 3), Timing(0.1 + 0.2, 0.01, (0.1, 0.1, 0.3))),
    Sample("execution", 0, 0, 1, Work(2, 3), Timing(0.3, None, None)),
    Sample("step", 1, 2, 3, Work(20, 2, 4, 2), Timing(0.3, 0.1, (0.1, 0.05))),
    Sample("step", 0, 0, 4, Work(20, 2, 64), None),
]
STATE = MeasuringConditions(load_average=0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return journal_path(tmp_path / "box.json")


Opener = Callable[..., Journal]


def filled(open_journal: Opener, path: Path) -> Journal:
    journal = open_journal(path, HEADER)
    journal.session(STATE)
    for sample in SAMPLES:
        journal.sample(sample)
    journal.reading(Reading("step", 1, 2, (0.3, 0.2)))
    journal.finding("disk", {"bytes_per_s": 1e9})
    return journal


def test_what_was_kept_comes_back_to_the_last_bit(open_journal: Opener, path: Path) -> None:
    filled(open_journal, path).close()
    again = open_journal(path, HEADER)
    assert again.readings == {("step", 1, 2): Reading("step", 1, 2, (0.3, 0.2))}
    assert again.findings == {"disk": {"bytes_per_s": 1e9}}
    assert again.sessions == [STATE]
    assert again.samples["step", 1, 2, 3] == SAMPLES[2]
    assert ("step", 0, 0, 4) not in again.samples, "memory may have room for it by now"
    assert again.samples["execution", 0, 0, 0] == SAMPLES[0]
    assert again.samples["execution", 0, 0, 1] == SAMPLES[1]


def test_everything_is_in_the_file_at_once(open_journal: Opener, path: Path) -> None:
    filled(open_journal, path)  # not closed: as if the power had failed
    assert path.read_bytes().count(b"\n") == 2 + len(SAMPLES) + 2


@pytest.mark.parametrize("cut", [1, 7, 30])
def test_a_line_that_was_cut_short_is_dropped_and_writing_goes_on_behind_the_whole_ones(
    open_journal: Opener, path: Path, cut: int
) -> None:
    filled(open_journal, path).close()
    path.write_bytes(path.read_bytes()[:-cut])
    again = open_journal(path, HEADER)
    assert again.findings == {}
    assert len(again.samples) == len(SAMPLES) - 1, "all but that without room"
    assert path.read_bytes().endswith(b"\n")
    again.finding("disk", None)
    again.close()
    assert open_journal(path, HEADER).findings == {"disk": None}


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({**HEADER, "settings": {"model": "gru", "beam": 4, "parts": ["execution"]}}, "settings.beam 1, this calibration 4"),
        ({**HEADER, "box": {"cpu_model": "Slide rule"}}, 'box.cpu_model "Abacus", this calibration "Slide rule"'),
        ({"settings": HEADER["settings"]}, 'box.cpu_model "Abacus", this calibration null'),
    ],
)
def test_a_journal_of_other_settings_or_another_box_is_refused_and_left_as_it_was(
    open_journal: Opener, path: Path, header: dict[str, object], said: str
) -> None:
    filled(open_journal, path).close()
    before = path.read_bytes()
    with pytest.raises(CalibrationError) as refused:
        open_journal(path, header)
    assert said in str(refused.value)
    assert "remove the journal" in str(refused.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("difference", "is_same_box"), [(8 << 10, True), (-(1 << 20), True), (1 << 30, False)])
def test_a_box_that_was_started_again_has_a_few_bytes_more_or_less(
    open_journal: Opener, path: Path, difference: int, is_same_box: bool
) -> None:
    header = {"box": {"memory_bytes": 8 << 30}}
    journal = open_journal(path, header)
    journal.finding("disk", 1)
    journal.close()
    with nullcontext() if is_same_box else pytest.raises(CalibrationError):
        again = open_journal(path, {"box": {"memory_bytes": header["box"]["memory_bytes"] + difference}})
        assert again.findings == {"disk": 1}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n',
        "\x00\x01\n",
    ],
)
def test_a_file_that_is_not_a_journal_is_refused_and_not_changed(open_journal: Opener, path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(CalibrationError, match="not a journal of a calibration"):
        open_journal(path, HEADER)
    assert path.read_text() == text


def test_damage_in_the_middle_is_not_mistaken_for_an_interruption(open_journal: Opener, path: Path) -> None:
    filled(open_journal, path).close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = b'{"bench": \n'
    path.write_bytes(b"".join(lines))
    with pytest.raises(CalibrationError) as refused:
        open_journal(path, HEADER)
    assert refused.value.line == 4


def test_an_empty_file_is_a_new_journal(open_journal: Opener, path: Path) -> None:
    path.touch()
    open_journal(path, HEADER)
    assert json.loads(path.read_text())["box"] == {"cpu_model": "Abacus"}
