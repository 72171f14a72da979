"""`simnmt sti profile`, as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate import processor_use
from simnmt.profile.profile_file import read_profile
from simnmt.streaming.encoder import EncoderWeights, padded
from simnmt.streaming.evaluation import Evaluator
from simnmt.streaming.store import write_store
from simnmt.streaming.texts import PIECES_FILE, learn_pieces
from simnmt.workload.length_units import unit_of_content
from tests.streaming.made_encoder import logits_of, made_weights

TEXTS = [f"{one} and {other}" for one in ("red", "blue", "green") for other in ("up", "down", "left")]
PIECES = learn_pieces(TEXTS, 30)


def labels_of(weights: EncoderWeights) -> list[int]:
    return logits_of(weights, *padded(PIECES.encode(TEXTS, 40), 0)).argmax(1).tolist()


# The first random model that gives both classes: its answers depend on the pieces, and the pieces on sentencepiece's version.
MODEL = next(model for seed in range(100) if len(set(labels_of(model := made_weights(vocabulary=PIECES.size, seed=seed)))) == 2)
QUICK = ("--repeats", "1", "--lengths", "4,8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and a task with the labels that its model gives."""
    place = tmp_path_factory.mktemp("made")
    write_store(replace(MODEL, files=PIECES.files), place / "s")
    write_store(MODEL, place / "mute")
    write_store(replace(MODEL, files=PIECES.files), place / "some", bits=(2, 32))
    labels = labels_of(MODEL)
    rows = [f"{text}\t{label}\n" for text, label in zip(TEXTS, labels, strict=True)]
    (place / "dev.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    (place / "three.tsv").write_text("sentence\tlabel\nred\t0\nblue\t2\n")
    return place


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for each in made.iterdir():
        (tmp_path / each.name).symlink_to(each)
    return tmp_path


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else computes while these tests run: they are not watched."""
    monkeypatch.setattr(processor_use, "others_cpus", lambda: 0.0)


def test_a_store_and_a_task_make_a_profile_that_a_planner_can_read(here: Path, simnmt: Callable[..., Any]) -> None:
    done = simnmt("sti", "profile", "s", "--task", "dev.tsv", *QUICK, "--pace", "1MB/s", "--out", "p.json")
    assert done.status == 0
    assert "written to p.json" in done.err
    assert "sti importance" in done.out
    assert "dev.tsv; 9 examples; commonest class" in done.out
    profile = read_profile(here / "p.json")
    cost = profile.sti_cost
    assert (cost.layers, sorted(cost.comp_s)) == (3, [4, 8])
    assert cost.importance is not None and len(cost.importance) == 12
    assert profile.sti is not None and profile.sti.io.paced_bytes_per_s == 1e6
    resident = MODEL.resident.values()
    assert profile.sti.resident_bytes == sum(4 * tensor.numel() for tensor in resident)
    assert len(profile.sti.compute.slowed_by_reads or ()) == 4
    assert profile.plane.s_per_tgt_token == 0.0
    assert not (here / "p.json.journal.jsonl").exists()
    named = unit_of_content(PIECES.files[PIECES_FILE])
    assert (profile.length_unit.src, profile.length_unit.tgt) == (named, named)


def test_a_model_no_better_than_the_commonest_class_is_warned_of(here: Path, simnmt: Callable[..., Any]) -> None:
    """Labels that are all the opposite of what the model gives."""
    wrong = (here / "dev.tsv").read_text().replace("\t0\n", "\tno\n").replace("\t1\n", "\t0\n").replace("\tno\n", "\t1\n")
    (here / "wrong.tsv").write_text(wrong)
    done = simnmt("sti", "profile", "s", "--task", "wrong.tsv", *QUICK, "--out", "p.json")
    assert done.status == 0
    (warning,) = (line for line in done.err.splitlines() if "nothing shows that the model has learnt the task" in line)
    assert warning.startswith("simnmt: warning: sti: right on 0.0 % of wrong.tsv, whose commonest class alone gives ")
    assert warning.endswith("and the order of the shards may be chance")


def test_a_unit_is_what_the_user_says_and_without_a_tokeniser_no_other(here: Path, simnmt: Callable[..., Any]) -> None:
    for options, unit in (((), "subword"), (("--unit", "word"), "word")):
        calibration = here / f"{unit}.json.journal.jsonl"
        calibration.write_text("of simnmt calibrate")
        assert simnmt("sti", "profile", "mute", *QUICK, *options, "--out", f"{unit}.json").status == 0
        assert read_profile(here / f"{unit}.json").length_unit.src == unit
        assert calibration.exists(), "only a task has a journal"


def test_what_another_profile_knows_is_kept(here: Path, simnmt: Callable[..., Any]) -> None:
    _write_tiny(here)
    done = simnmt("sti", "profile", "--model", "tiny.json", *QUICK, "--into", "@cpu1-marian", "--out", "p.json", "--json")
    assert done.status == 0
    assert json.loads(done.out)["cost_models"]["sti"]["importance"] is None
    before, after = (read_profile(path) for path in (_shipped("@cpu1-marian"), here / "p.json"))
    assert (after.execution, after.step, after.disk) == (before.execution, before.step, before.disk)
    assert before.sti is None and after.sti is not None
    assert after.provenance.source.endswith("; later: sti")


def test_a_translator_is_profiled_by_its_sizes(here: Path, simnmt: Callable[..., Any]) -> None:
    _write_tiny(here)
    done = simnmt("sti", "profile", "--model", "tiny.json", *QUICK, "--pace", "5MB/s", "--out", "p.json")
    assert done.status == 0
    profile = read_profile(here / "p.json")
    assert profile.sti_cost.layers == 4
    assert profile.model.vocab == 60
    assert profile.sti is not None and profile.sti.decoder is not None


def _write_tiny(here: Path) -> None:
    tokens = {"eos_token": 0, "unk_token": 1, "pad_token": 59, "start_token": 59}
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "heads": 4, "ffn": 32, "vocab": 60, "max_positions": 80}
    (here / "tiny.json").write_text(json.dumps({"kind": "transformer"} | sizes | tokens))


def _shipped(name: str) -> Path:
    from simnmt.base import shipped_files

    return shipped_files.find("calibration", name)


def test_evaluations_of_an_interrupted_profile_are_not_made_again(
    here: Path, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("sti", "profile", "s", "--task", "dev.tsv", *QUICK, "--out", "p.json")
    evaluate, made = Evaluator.evaluate, []

    def interrupted(self: Evaluator, bits: Any) -> Any:
        if len(made) == 6:
            raise KeyboardInterrupt
        made.append(bits)
        return evaluate(self, bits)

    monkeypatch.setattr(Evaluator, "evaluate", interrupted)
    stopped = simnmt(*command)
    assert stopped.status == 130
    assert (here / "p.json.journal.jsonl").exists()
    made.append(None)  # the seventh, by which it was stopped, is made now
    done = simnmt(*command)
    assert done.status == 0
    assert len(made) == 1 + 13 + 1, "the last one is of the whole model, which no shard is ranked by"
    assert not (here / "p.json.journal.jsonl").exists()


REFUSED = [
    (("s", "--model", "marian"), "and not both"),
    (("nowhere",), "nowhere"),
    (("s", "--lengths", "four"), "give whole numbers"),
    (("--model", "marian", "--into", "@cpu1-marian", "--unit", "word"), "has costs per token of unit subword"),
]


@pytest.mark.parametrize(("arguments", "says"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_what_cannot_be_profiled_is_said_in_one_line_and_at_once(
    here: Path, simnmt: Callable[..., Any], arguments: tuple[str, ...], says: str
) -> None:
    done = simnmt("sti", "profile", *arguments, "--out", "p.json")
    assert (done.status, done.out) == (2, "")
    assert says in done.err
    assert not (here / "p.json").exists()


def test_costs_per_token_of_one_unit_are_not_relabelled_as_those_of_another(here: Path, simnmt: Callable[..., Any]) -> None:
    """Neither by `--unit` nor by the store's own tokeniser; where none says otherwise, the profile's unit stays."""
    command = ("sti", "profile", *QUICK, "--out")
    assert simnmt(*command, "words.json", "mute", "--unit", "word").status == 0
    pieces = unit_of_content(PIECES.files[PIECES_FILE])
    for options, unit in ((("s",), pieces), (("s", "--unit", "subword"), "subword")):
        done = simnmt(*command, "p.json", *options, "--into", "words.json")
        assert (done.status, done.out) == (2, "")
        assert f"words has costs per token of unit word, this model is measured in {unit}" in done.err
        assert not (here / "p.json").exists()
    _write_tiny(here)
    for model in (("--model", "tiny.json", "--into", "words.json"), ("mute", "--into", "@cpu1-marian")):
        done = simnmt(*command, "p.json", *model)
        assert (done.status, done.out) == (2, "") and "--into" in done.err, "a translator and a classifier"
    for options in (("mute",), ("s", "--unit", "word")):
        assert simnmt(*command, "p.json", *options, "--into", "words.json", "--force").status == 0
        assert read_profile(here / "p.json").length_unit.src == "word"
