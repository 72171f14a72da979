"""`simnmt sti train`, as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SMALL = ("--layers", "2", "--slices", "2", "--width", "8", "--ffn", "8", "--vocab", "30", "--positions", "8", "--threads", "1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a small task."""
    monkeypatch.chdir(tmp_path)
    rows = [f"a {word} {thing}\t{label}" for word, label in (("good", 1), ("bad", 0)) for thing in ("film", "book", "day")]
    (tmp_path / "films.tsv").write_text("sentence\tlabel\n" + "\n".join(rows * 4) + "\n")
    (tmp_path / "other.tsv").write_text(f"sentence\tlabel\n{rows[0]}\na bad good day\t0\n")
    return tmp_path


def test_a_model_is_trained_and_the_same_command_finds_it_done(here: Path, simnmt: Callable[..., Any]) -> None:
    asked = ("sti", "train", "--task", "films.tsv", "--dev", "other.tsv", "--out", "model", "--epochs", "2", *SMALL)
    told = simnmt(*asked)
    assert told.status == 0
    lines = told.out.splitlines()
    assert lines[0].startswith("model: 2 x 2 elastic encoder of width 8, ")
    assert lines[1].startswith("trained on 24 examples, 2 epochs, ")
    assert lines[2].startswith("right on other.tsv: ")
    assert lines[2].endswith("of 2, 1 of them trained on too (commonest class 50.0%)")
    again = simnmt(*asked, "--json")
    account = json.loads(again.out)
    assert account["training"]["epochs"] == 2 and account["dev"]["examples"] == 2
    assert account == json.loads((here / "model" / "training.json").read_text())


@pytest.mark.parametrize(("dev", "judged"), [((), "the examples it was trained on"), (("--dev", "other.tsv"), "other.tsv")])
def test_a_model_no_better_than_the_commonest_class_is_warned_of(
    here: Path, simnmt: Callable[..., Any], dev: tuple[str, ...], judged: str
) -> None:
    """Labels that follow from nothing in the text cannot be learnt."""
    for name in ("noise.tsv", "other.tsv"):
        rows = [f"{'a b' if name == 'noise.tsv' else 'c d'} film\t{number % 2}" for number in range(24)]
        (here / name).write_text("sentence\tlabel\n" + "\n".join(rows) + "\n")
    told = simnmt("sti", "train", "--task", "noise.tsv", *dev, "--out", "model", "--epochs", "1", *SMALL)
    assert told.status == 0
    commonest = "whose commonest class alone gives 50.0 %: nothing shows that the model has learnt the task"
    assert told.err == f"simnmt: warning: right on 50.0 % of {judged}, {commonest}\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--task", "none.tsv"), "none.tsv: cannot be read"),
        (("--task", "films.tsv", "--dev", "dev.tsv"), "dev.tsv:2: the label '7' is no class"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(
    given: tuple[str, ...], said: str, here: Path, simnmt: Callable[..., Any]
) -> None:
    (here / "dev.tsv").write_text("sentence\tlabel\nx\t7\n")
    told = simnmt("sti", "train", "--out", "model", *SMALL, *given)
    assert (told.status, told.out) == (2, "") and said in told.err and len(told.err.splitlines()) == 1
    assert not (here / "model").exists()


def test_an_interrupt_says_what_is_kept(here: Path, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from simnmt.nmt.training import session
    from simnmt.streaming.encoder.learner import ElasticLearner

    learnt = ElasticLearner.step

    def interrupted(self: Any, *told: Any, step: int, **named: Any) -> float:
        if step == 3:
            raise KeyboardInterrupt
        return learnt(self, *told, step=step, **named)

    monkeypatch.setattr(session, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(ElasticLearner, "step", interrupted)
    given = ("--batch-tokens", "32", "--epochs", "2", *SMALL)
    told = simnmt("sti", "train", "--task", "films.tsv", "--out", "model", *given)
    assert told.status == 130 and "the same command goes on from the last save" in told.err
