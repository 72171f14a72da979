"""`simnmt nmt train` and `simnmt nmt translate`, as a user meets them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.packages import install_command
from tests.command_line import Command, assert_one_line
from tests.nmt import toy_language

SHAPE = ["--model", "tiny.json", "--heldout", "20", "--batch-tokens", "200", "--threads", "1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, an architecture, and a model that was trained by command."""
    place = tmp_path_factory.mktemp("nmt")
    toy_language.write(place, 300)
    (place / "tiny.json").write_text(toy_language.GRU.model_dump_json())
    return place


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def train(here: Path, simnmt: Command) -> Command:
    def run(*more: str, shape: list[str] = SHAPE) -> Any:
        return simnmt("nmt", "train", "--src", "one.txt", "--tgt", "other.txt", *shape, *more)

    return run


@pytest.fixture
def model(here: Path, train: Command) -> str:
    if not Path("m").exists():
        assert train("--steps", "3", "--out", "m").status == 0
    return "m"


def test_a_training_says_what_came_of_it_and_goes_on_when_told_again(here: Path, train: Command) -> None:
    first = train("--steps", "4", "--out", "told")
    assert (first.status, first.err) == (0, "")
    assert first.out.startswith("trained on 260 pairs: 4 steps, ")
    assert "\non 20 held-out pairs, beam 1: perplexity " in first.out
    assert first.out.endswith("\nmodel: told\n")
    more = json.loads(train("--steps", "6", "--out", "told", "--beam", "2", "--json").out)
    assert (more["training"]["steps"], more["training"]["sessions"], more["result"]["beam"]) == (6, 2, 2)


def test_an_interrupt_says_what_is_kept(here: Path, train: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from simnmt.base.errors import Interrupted
    from simnmt.nmt.training import trainer

    step = trainer.Learner.step

    def stopped(self: Any, rows: Any, number: int, share: float) -> float:
        if number == 4:
            raise Interrupted(2)
        return step(self, rows, number, share)

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "SAVE_EVERY_S", -1.0)
        patched.setattr(trainer.Learner, "step", stopped)
        done = train("--epochs", "3", "--out", "i")
    assert (done.status, done.out) == (130, "")
    assert done.err.count("simnmt: note: ") == 1
    assert json.loads(train("--steps", "5", "--out", "i", "--json").out)["training"]["sessions"] == 2


def test_as_many_lines_come_out_as_go_in(here: Path, model: str, simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "un deux\n\nneuf sept un\r\ndeux"
    Path("in.txt").write_bytes(text.encode())

    def translate(*options: str) -> str:
        done = simnmt("nmt", "translate", "--model", model, "--threads", "1", "--max-len", "6", *options)
        assert done.status == 0, done.err
        return str(done.out)

    translated = translate("in.txt")
    lines = translated.split("\n")
    assert len(lines) == 5 and lines[1] == lines[4] == "" and all(lines[index] for index in (0, 2, 3))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))
    assert translate() == translated
    assert translate("in.txt", "--out", "out.txt") == ""
    assert Path("out.txt").read_text() == translated
    for batching in ("mini", "top-up --threshold immediate", "top-up --threshold 1 --collect 2", "mini --fused"):
        assert translate("in.txt", "--batch", "2", "--batching", *batching.split()) == translated
    rows = [json.loads(line) for line in translate("in.txt", "--beam", "2", "--json").splitlines()]
    assert [row["src_len"] > 0 for row in rows] == [True, False, True, True]
    assert all(row["score"] < 0 for row in rows if row["src_len"])


def test_a_bundle_of_the_vocabulary_is_translated_with(here: Path, model: str, simnmt: Command) -> None:
    """With each token a candidate the text is the same; with fewer no other is written; what does not fit is told."""
    import numpy as np

    from simnmt.nmt.models import load_model
    from simnmt.nmt.subwords import Subwords
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists

    loaded = load_model(model)
    src_vocab, vocab = loaded.architecture.src_vocab, loaded.architecture.tgt_vocab
    none, starts = np.empty(0, np.int32), np.zeros(src_vocab + 1, np.int64)
    few = np.array([loaded.architecture.unk_token, loaded.architecture.eos_token, 9], np.int32)
    for name, always in (("all", np.arange(vocab, dtype=np.int32)), ("few", np.sort(few))):
        CandidateLists(starts, none, always, vocab).save(name, loaded.model)
    Path("in.txt").write_text("un deux\n\nneuf sept un\ndeux\n")
    translate = ("nmt", "translate", "--model", model, "--threads", "1", "in.txt", "--max-len", "6")
    dense = simnmt(*translate)
    for more in ((), ("--beam", "2")):
        full = simnmt(*translate, *more) if more else dense
        done = simnmt(*translate, "--vocabulary", "all", *more)
        assert (done.status, done.out, done.err) == (0, full.out, full.err)
    short = simnmt(*translate, "--vocabulary", "few")
    target = Subwords.read(Path(model) / "target.model")
    words = set(target.decode([[9]])[0].split()) | set(target.decode([[int(few[0])]])[0].split())
    assert short.status == 0 and set(short.out.split()) <= words


TRAIN = "train --src one.txt --tgt other.txt --model tiny.json --heldout 20"
TRANSLATE = "translate --model m --threads 1"


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("train --src three.txt --tgt three.txt --out x", "3 different pairs"),
        ("train --src one.txt --tgt other.txt --heldout 20 --out x", "8,000"),
        (f"{TRAIN} --out full", "full: "),
        (f"{TRAIN} --out m --seed 9", "m: "),
        (f"{TRAIN} --out x --minutes nan", "minutes"),
        (f"{TRANSLATE} latin.txt", "latin.txt:1:4: "),
        (f"{TRANSLATE} one.txt --out one.txt", "one.txt "),
        (f"{TRANSLATE} one.txt --beam 0", "beam is 0"),
        (f"{TRANSLATE} one.txt --batching maxy", "--batching: "),
        (f"{TRANSLATE} one.txt --batching top-up --threshold 64", "--batching: "),
        (f"{TRANSLATE} one.txt --vocabulary one.txt", "one.txt: "),
        (f"{TRANSLATE} one.txt --sharp slow", "slow"),
        ("translate --model full one.txt", "full: "),
        ("translate --model m --sharp exact --batching mini one.txt", "--batching"),
    ],
)
def test_bad_input_is_one_line(here: Path, model: str, simnmt: Command, arguments: str, place: str) -> None:
    Path("three.txt").write_text("a\nb\nc\n")
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    Path("full").mkdir(exist_ok=True)
    Path("full/letter").write_text("")
    done = simnmt("nmt", *arguments.split())
    assert (done.status, done.out) == (2, "") and place in done.err
    assert_one_line(done.err)
    assert not Path("x").exists()


@pytest.mark.parametrize("package", ["torch", "sacrebleu"])
def test_without_its_packages_the_remedy_is_told(
    here: Path, train: Command, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    done = train("--out", "x")
    assert done.status == 2
    assert done.err == f"simnmt: this needs the package {package} ({install_command('models')})\n"
