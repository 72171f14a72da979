"""The task of chained references says what it says it does."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from benchmarks.chained_references import example, examples, main
from simnmt.streaming.encoder.task import read_task


def test_a_chain_is_followed_by_hand() -> None:
    draw = random.Random(4)
    for _ in range(50):
        sentence, label = example(draw, "abcdef", 5)
        begin, steps, *pairs = sentence.split()
        leads, at = {pair[0]: pair[1] for pair in pairs}, begin
        for _ in range(int(steps)):
            at = leads[at]
        assert (at, len(pairs)) == ("abcdef"[label], 6)


def test_no_sentence_comes_twice_and_no_class_is_common() -> None:
    made = examples(3000, 8, 4, seed=1)
    assert len({sentence for sentence, _ in made}) == 3000 and made == examples(3000, 8, 4, seed=1)
    assert all(300 < sum(label == each for _, label in made) < 450 for each in range(8))


def test_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="no 100 different"):
        examples(100, 2, 1, seed=1)


def test_files_that_the_reader_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["chained_references", "--out", str(tmp_path), "--train", "40", "--dev", "20", "--test", "10"]
    )
    main()
    train, dev, test = (read_task(tmp_path / f"{name}.tsv") for name in ("train", "dev", "test"))
    assert (len(train), len(dev), len(test)) == (40, 20, 10)
    assert len({*train.texts, *dev.texts, *test.texts}) == 70
