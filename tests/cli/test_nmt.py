"""`simnmt nmt train` and `simnmt nmt translate`, as a user meets them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.packages import install_command
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
def train(here: Path, simnmt: Callable[..., Any]) -> Callable[..., Any]:
    def run(*more: str, shape: list[str] = SHAPE) -> Any:
        return simnmt("nmt", "train", "--src", "one.txt", "--tgt", "other.txt", *shape, *more)

    return run


@pytest.fixture
def model(here: Path, train: Callable[..., Any]) -> str:
    if not Path("m").exists():
        assert train("--steps", "3", "--out", "m").status == 0
    return "m"


def test_a_training_says_what_came_of_it_and_goes_on_when_told_again(here: Path, train: Callable[..., Any]) -> None:
    first = train("--steps", "4", "--out", "told")
    assert (first.status, first.err) == (0, "")
    assert first.out.startswith("trained on 260 pairs: 4 steps, ")
    assert "on 20 held-out pairs, greedy: BLEU " in first.out and "BLEU nrefs:1|case:mixed|" in first.out
    assert first.out.endswith("\nmodel: told\n")
    more = json.loads(train("--steps", "6", "--out", "told", "--beam", "2", "--json").out)
    assert (more["training"]["steps"], more["training"]["sessions"], more["result"]["beam"]) == (6, 2, 2)


def test_an_interrupt_says_what_is_kept(here: Path, train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
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
        found = train("--epochs", "3", "--out", "i")
    assert (found.status, found.out) == (130, "")
    assert found.err.count("simnmt: note: ") == 1
    assert json.loads(train("--steps", "5", "--out", "i", "--json").out)["training"]["sessions"] == 2


def test_as_many_lines_come_out_as_go_in(
    here: Path, model: str, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "un deux\n\nneuf sept un\r\ndeux"
    Path("in.txt").write_bytes(text.encode())
    found = simnmt("nmt", "translate", "--model", model, "--threads", "1", "in.txt", "--max-len", "6")
    assert found.status == 0
    lines = found.out.split("\n")
    assert len(lines) == 5 and lines[1] == lines[4] == "" and all(lines[index] for index in (0, 2, 3))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))
    assert simnmt("nmt", "translate", "--model", model, "--threads", "1", "--max-len", "6").out == found.out
    assert (
        simnmt("nmt", "translate", "--model", model, "--threads", "1", "in.txt", "--max-len", "6", "--out", "out.txt").out == ""
    )
    assert Path("out.txt").read_text() == found.out
    for batching in (
        ["mini"],
        ["top-up", "--threshold", "immediate"],
        ["top_up", "--threshold", "half_empty"],
        ["top-up", "--threshold", "1", "--collect", "2"],
        ["mini", "--fused"],
    ):
        other = simnmt(
            "nmt", "translate", "--model", model, "--max-len", "6", "--batch", "2", "in.txt", "--batching", *batching
        )
        assert other.out == found.out
    asked = simnmt("nmt", "translate", "--model", model, "--threads", "1", "in.txt", "--max-len", "6", "--beam", "2", "--json")
    rows = [json.loads(line) for line in asked.out.splitlines()]
    assert [row["src_len"] > 0 for row in rows] == [True, False, True, True]
    assert all(row["score"] < 0 for row in rows if row["src_len"])


def test_a_bundle_of_the_vocabulary_is_translated_with(here: Path, model: str, simnmt: Callable[..., Any]) -> None:
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
        found = simnmt(*translate, "--vocabulary", "all", *more)
        assert (found.status, found.out, found.err) == (0, full.out, full.err)
    short = simnmt(*translate, "--vocabulary", "few")
    target = Subwords.read(Path(model) / "target.model")
    words = set(target.decode([[9]])[0].split()) | set(target.decode([[int(few[0])]])[0].split())
    assert short.status == 0 and set(short.out.split()) <= words
    for found, said in (
        (simnmt(*translate, "--vocabulary", "all", "--fused"), "whose search is fused of itself (leave --fused out)"),
        (simnmt(*translate, "--direction", "fr-en"), "--direction"),
        (simnmt(*translate, "--vocabulary", "all", "--direction", "x"), "all: candidate lists have no directions"),
        (simnmt(*translate, "--vocabulary", "in.txt"), "in.txt: damaged, or no vocabulary bundle"),
        (simnmt(*translate, "--vocabulary", "absent"), "absent: "),
    ):
        assert found.status == 2 and said in found.err and found.err.count("\n") == 1, found.err


def test_bad_input_is_told_in_a_line(here: Path, model: str, train: Callable[..., Any], simnmt: Callable[..., Any]) -> None:
    Path("three.txt").write_text("a\nb\nc\n")
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    Path("full").mkdir()
    Path("full/letter").write_text("")
    translate = ("nmt", "translate", "--model", model)
    for found, what in (
        (simnmt("nmt", "train", "--src", "three.txt", "--tgt", "three.txt", "--out", "x"), "3 different pairs, too few"),
        (simnmt("nmt", "train", "--src", "one.txt", "--tgt", "three.txt", "--out", "x"), "300 lines, but three.txt has 3"),
        (train("--out", "x", "--device", "tpu"), "no device tpu (cpu or cuda:0)"),
        (train("--out", "full"), "full: holds something else than a training"),
        (train("--out", "m", "--seed", "9"), "m: "),
        (train("--out", "x", shape=["--heldout", "20"]), "a vocabulary of 8,000 for the source text"),
        (train("--out", "x", "--vocab", "9"), "tiny.json: --vocab 9 is not what the architecture says"),
        (train("--out", "x", "--minutes", "nan"), "minutes"),
        (simnmt(*translate, "none.txt"), "none.txt: no such file"),
        (simnmt(*translate, "latin.txt"), "latin.txt:1:4: byte 0xe9 is not UTF-8"),
        (simnmt(*translate, "one.txt", "--out", "one.txt"), "one.txt would replace what is read"),
        (simnmt(*translate, "one.txt", "--beam", "0"), "beam is 0"),
        (simnmt(*translate, "one.txt", "--batch", "0"), "--batch: "),
        (simnmt(*translate, "one.txt", "--batch", "9" * 23), "--batch: "),
        (simnmt(*translate, "one.txt", "--batching", "maxy"), "--batching: "),
        (simnmt(*translate, "one.txt", "--batching", "top-up", "--threshold", "64"), "--batching: "),
        (simnmt(*translate, "one.txt", "--batching", "top-up", "--threshold", "-1"), "--threshold: "),
        (simnmt("nmt", "translate", "--model", "full", "one.txt"), "full: no trained model: source.model is missing"),
    ):
        assert (found.status, found.out, found.err.count("\n")) == (2, "", 1), found.err
        assert what in found.err
    assert not Path("x").exists()


@pytest.mark.parametrize("package", ["torch", "transformers", "sentencepiece", "sacrebleu"])
def test_without_its_packages_the_remedy_is_told(
    here: Path, train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    found = train("--out", "x")
    assert found.status == 2
    assert found.err == f"simnmt: this needs the package {package} ({install_command('models')})\n"
