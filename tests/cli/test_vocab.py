"""`simnmt vocab build` and `simnmt vocab inspect`, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate.projection_bench import Setting
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.models import build_model
from simnmt.nmt.subwords import learn_vocabulary
from tests.command_line import Command, assert_one_line
from tests.nmt import toy_language

GRU = toy_language.GRU.model_copy(update={"src_vocab": 36, "tgt_vocab": 36})
MARKS = {"pad": 0, "unk": 1, "start": 2, "eos": 3}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models, and text; the models have learnt nothing."""
    place = tmp_path_factory.mktemp("vocab")
    toy_language.write(place, 120)
    subwords = learn_vocabulary([text for pair in toy_language.pairs(300) for text in pair], 36, side="whole", **MARKS)
    for name, seed in (("m", 4), ("other", 5)):
        save_checkpoint(place / name, build_model(GRU, seed=seed), GRU)
        for side in ("source.model", "target.model"):
            (place / name / side).write_bytes(subwords)
    return place


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def build(here: Path, simnmt: Command) -> Command:
    def run(*more: str) -> Any:
        options = ["--clusters", "6", "--sentences", "40", "--threads", "1"]
        return simnmt("vocab", "build", "--model", "m", *options, *more)

    return run


def test_a_bundle_is_built_and_told_again_by_inspect(build: Command, simnmt: Command) -> None:
    built = build("--text", "one.txt", "--top", "2", "--out", "b")
    assert built.status == 0
    assert built.err == "simnmt: note: one.txt: 40 of 120 lines, evenly spread; --sentences takes more\n"
    assert simnmt("vocab", "inspect", "b").out == built.out
    summary = json.loads(simnmt("vocab", "inspect", "b", "--model", "m", "--json").out)
    assert (summary["label"], summary["clusters"], summary["top"], summary["sentences"]) == ("one", 6, 2, 40)
    assert 0 < summary["mean"] <= summary["quantiles"]["max"] <= 1
    memory = summary["memory_bytes"]
    assert memory["centroids"] == 6 * 48 * 4
    assert memory["total"] == sum(memory[part] for part in ("centroids", "norms", "indices", "starts", "flags"))


def test_several_texts_have_one_set_of_clusters(build: Command) -> None:
    texts = ["--text", "one.txt", "--text", "other.txt"]
    named = {"of-one": texts[:2], "of-other": texts[2:], "of-both": texts}
    built = (build(*some, "--json", "--top", "1", "--out", name) for name, some in named.items())
    one, other, both = (json.loads(done.out) for done in built)
    assert (both["label"], both["sentences"]) == ("one+other", 80)
    assert both["contexts"] == one["contexts"] + other["contexts"]


def test_lists_are_built_where_translations_are_named(here: Path, simnmt: Command) -> None:
    command = ["vocab", "build", "--model", "m", "--text", "one.txt", "--targets", "other.txt", "--candidates", "4"]
    built = simnmt(*command, "--threads", "1", "--out", "lists")
    assert (built.status, built.err) == (0, "")
    assert simnmt("vocab", "inspect", "lists", "--model", "m").out == built.out
    summary = json.loads(simnmt("vocab", "inspect", "lists", "--json").out)
    assert (summary["kind"], summary["most"], summary["pairs"]) == ("candidates", 4, 120)


def test_pairs_and_sentences_that_teach_nothing_are_not_counted(build: Command, here: Path, simnmt: Command) -> None:
    (here / "gaps.one").write_text("un deux\n\ntrois\nquatre cinq\nneuf\n", encoding="utf-8")
    (here / "gaps.other").write_text("one two\nzero\n\nfour five\nnine\n", encoding="utf-8")
    given = ["--model", "m", "--text", "gaps.one", "--targets", "gaps.other", "--candidates", "4", "--threads", "1"]
    lists = simnmt("vocab", "build", *given, "--out", "gaps")
    assert (lists.status, lists.err) == (0, "simnmt: note: 2 of 5 pairs left out: a side is empty\n")
    assert "\npairs            3\n" in lists.out
    clusters = json.loads(build("--text", "gaps.one", "--out", "gaps", "--force", "--json").out)
    assert clusters["sentences"] == 4


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("inspect b --model other", "b: "),
        ("inspect one.txt", "one.txt: "),
        ("inspect missing", "missing: "),
        ("build --model m --out never --text one.txt --clusters 100000", "100,000 clusters"),
        ("build --model m --out never --text missing.txt", "missing.txt"),
        ("build --model m --out never --text empty.txt", "empty.txt: "),
        ("build --model m --out never --text one.txt --targets other.txt --clusters 6", "--clusters"),
        ("build --model m --out never --text one.txt --candidates 6", "--candidates"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_bundle(
    build: Command, here: Path, simnmt: Command, arguments: str, place: str
) -> None:
    (here / "empty.txt").write_text("\n\n")
    if not Path("b").exists():
        build("--text", "one.txt", "--out", "b")
    done = simnmt("vocab", *arguments.split())
    assert (done.status, done.out) == (2, "") and place in done.err
    assert_one_line(done.err.splitlines(keepends=True)[-1])
    assert not (here / "never").exists()


def test_a_bench_takes_its_own_default_for_what_is_not_named(simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """It once asked for --share and --rows, whose defaults are in its help."""
    asked: list[Setting] = []

    def bench(setting: Setting, progress: object) -> None:
        asked.append(setting)
        raise CalibrationError("enough")

    monkeypatch.setattr("simnmt.calibrate.vocabulary_bench.vocabulary_bench", bench)
    simnmt("vocab", "bench")
    simnmt("vocab", "bench", "--rows", "1", "--share", "6")
    assert asked == [Setting(), Setting(rows=(1,), shares=(0.06,))]
