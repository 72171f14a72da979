"""`simnmt sti train`, `shard`, `inspect` and `profile`, as a user meets them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate.box import BusyWatch
from simnmt.profile.device_profile import read_profile
from simnmt.streaming.encoder import EncoderWeights, padded
from simnmt.streaming.encoder_folder import save_encoder
from simnmt.streaming.evaluation import Evaluator
from simnmt.streaming.store import ShardStore, write_store
from simnmt.streaming.texts import PIECES_FILE, learn_pieces
from simnmt.workload.length_units import unit_of_content
from tests.command_line import Command, assert_one_line
from tests.streaming.made_encoder import logits_of, made_weights

TEXTS = [f"{one} and {other}" for one in ("red", "blue", "green") for other in ("up", "down", "left")]
PIECES = learn_pieces(TEXTS, 30)
UNIT = unit_of_content(PIECES.files[PIECES_FILE])


def labels_of(weights: EncoderWeights) -> list[int]:
    return logits_of(weights, *padded(PIECES.encode(TEXTS, 40), 0)).argmax(1).tolist()


# The first random model that gives both classes: its answers depend on the pieces, and the pieces on sentencepiece's version.
MODEL = next(model for seed in range(100) if len(set(labels_of(model := made_weights(vocabulary=PIECES.size, seed=seed)))) == 2)
SMALL = ("--layers", "2", "--slices", "2", "--width", "8", "--ffn", "8", "--vocab", "30", "--positions", "8", "--threads", "1")
QUICK = ("--repeats", "1", "--lengths", "4,8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model `m` as `sti train` writes it, its store `s`, the store `mute` without a tokeniser, and tasks."""
    place = tmp_path_factory.mktemp("made")
    (place / "m").mkdir()
    (place / "m" / PIECES_FILE).write_bytes(PIECES.files[PIECES_FILE])
    save_encoder(place / "m", made_weights(vocabulary=PIECES.size, seed=3), {"label_names": ["no", "yes"]})
    write_store(replace(MODEL, files=PIECES.files), place / "s")
    write_store(MODEL, place / "mute")
    rows = list(zip(TEXTS, labels_of(MODEL), strict=True))
    films = [(f"a {word} {thing}", label) for word, label in (("good", 1), ("bad", 0)) for thing in ("film", "book", "day")]
    tasks = {
        "dev": rows,
        "wrong": [(text, 1 - label) for text, label in rows],
        "films": films * 4,
        "other": [films[0], ("a bad good day", 0)],
        "noise": [("a b film", number % 2) for number in range(24)],
        "class7": [("x", 7)],
    }
    for name, examples in tasks.items():
        (place / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in examples))
    tokens = {"eos_token": 0, "unk_token": 1, "pad_token": 59, "start_token": 59}
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "heads": 4, "ffn": 32, "vocab": 60, "max_positions": 80}
    (place / "tiny.json").write_text(json.dumps({"kind": "transformer"} | sizes | tokens))
    return place


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with all of these; whoever else computes meanwhile is not watched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BusyWatch, "over_span", lambda: 0.0)
    for path in made.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def test_a_model_is_sharded_and_described_again_by_inspect(here: Path, simnmt: Command) -> None:
    made = simnmt("sti", "shard", "m", "--out", "new")
    assert (made.status, made.err) == (0, "")
    assert "\nby bits:\nbits " in made.out and "\nby layer:\nlayer " in made.out
    assert simnmt("sti", "inspect", "new").out == made.out
    record = json.loads(simnmt("sti", "inspect", "new", "--check", "--json").out)
    assert (record["layers"], record["slices"], record["records"], record["checked"]) == (3, 4, 72, True)
    assert [row["bits"] for row in record["by_bits"]] == [2, 3, 4, 5, 6, 32]
    errors = [row["rmse_over_s"] for row in record["by_bits"]]
    assert errors == sorted(errors, reverse=True) and errors[0] == pytest.approx(0.37, abs=0.05) and errors[-1] == 0
    assert record["shards_bytes"] == (here / "new" / "shards.bin").stat().st_size
    with ShardStore("new") as store:
        assert store.label_names == ("no", "yes")
        assert store.tokenizer().encode(["red and down"], 9) == PIECES.encode(["red and down"], 9)
    few = simnmt("sti", "shard", "m", "--out", "few", "--bits", "6,2", "--json")
    assert [row["bits"] for row in json.loads(few.out)["by_bits"]] == [2, 6]


def test_a_model_is_trained_and_the_same_command_finds_it_done(here: Path, simnmt: Command) -> None:
    command = ("sti", "train", "--task", "films.tsv", "--dev", "other.tsv", "--out", "model", "--epochs", "2", *SMALL)
    done = simnmt(*command)
    assert done.status == 0
    assert {"examples": "24", "epochs": "2", "on": "other.tsv"}.items() <= dict(
        line.rsplit(maxsplit=1) for line in done.out.splitlines()
    ).items()
    account = json.loads(simnmt(*command, "--json").out)
    assert account["training"]["epochs"] == 2 and account["judged"]["examples"] == 2
    assert account == json.loads((here / "model" / "training.json").read_text())


def test_a_store_and_a_task_make_a_profile_that_a_planner_can_read(here: Path, simnmt: Command) -> None:
    done = simnmt("sti", "profile", "s", "--task", "dev.tsv", *QUICK, "--pace", "1MB/s", "--out", "p.json")
    assert done.status == 0
    assert "written to p.json" in done.err and "dev.tsv; 9 examples; commonest class" in done.out
    profile = read_profile(here / "p.json")
    cost = profile.sti_cost
    assert (cost.layers, sorted(cost.comp_s)) == (3, [4, 8])
    assert cost.importance is not None and len(cost.importance) == 12
    assert profile.sti is not None and profile.sti.io.paced_bytes_per_s == 1e6
    assert profile.sti.resident_bytes == sum(4 * tensor.numel() for tensor in MODEL.resident.values())
    assert len(profile.sti.compute.slowed_by_reads or ()) == 4
    assert profile.plane.s_per_tgt_token == 0.0
    assert not (here / "p.json.journal.jsonl").exists()
    assert (profile.length_unit.src, profile.length_unit.tgt) == (UNIT, UNIT)


@pytest.mark.parametrize(
    "command",
    [
        ("profile", "s", "--task", "wrong.tsv", *QUICK, "--out", "p.json"),
        ("train", "--task", "noise.tsv", "--out", "model", "--epochs", "1", *SMALL),
    ],
)
def test_a_model_no_better_than_the_commonest_class_is_warned_of(here: Path, simnmt: Command, command: tuple[str, ...]) -> None:
    done = simnmt("sti", *command)
    assert done.status == 0
    warnings = [line for line in done.err.splitlines() if "nothing shows that the model has learnt the task" in line]
    assert len(warnings) == 1 and warnings[0].startswith("simnmt: warning: ")


def test_a_translator_is_profiled_by_its_sizes(here: Path, simnmt: Command) -> None:
    done = simnmt("sti", "profile", "--model", "tiny.json", *QUICK, "--pace", "5MB/s", "--out", "p.json", "--json")
    assert done.status == 0
    assert json.loads(done.out)["cost_models"]["sti"]["importance"] is None
    profile = read_profile(here / "p.json")
    assert profile.sti is not None and profile.sti.decoder is not None and profile.sti_cost.layers == 4


def test_evaluations_of_an_interrupted_profile_are_not_made_again(
    here: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("sti", "profile", "s", "--task", "dev.tsv", *QUICK, "--out", "p.json")
    evaluate, made = Evaluator.evaluate, []

    def interrupted(self: Evaluator, bits: Any) -> Any:
        if len(made) == 6:
            raise KeyboardInterrupt
        made.append(bits)
        return evaluate(self, bits)

    monkeypatch.setattr(Evaluator, "evaluate", interrupted)
    assert simnmt(*command).status == 130
    assert (here / "p.json.journal.jsonl").exists()
    made.append(None)  # the seventh, by which it was stopped, is made now
    assert simnmt(*command).status == 0
    assert len(made) == 1 + 13 + 1, "the last one is of the whole model, which no shard is ranked by"
    assert not (here / "p.json.journal.jsonl").exists()


def test_lengths_count_pieces_of_the_stores_tokeniser_unless_a_unit_is_given(here: Path, simnmt: Command) -> None:
    calibration = here / "p.json.journal.jsonl"
    calibration.write_text("of simnmt calibrate")
    for options, unit in ((("s",), UNIT), (("mute", "--unit", "word"), "word"), (("mute",), "subword")):
        assert simnmt("sti", "profile", *QUICK, *options, "--out", "p.json", "--force").status == 0
        assert read_profile(here / "p.json").length_unit.src == unit
    assert calibration.exists(), "only a task has a journal"


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("shard m --out new --bits two", "--bits"),
        ("shard m --out new --bits 2,7", "7 bits"),
        ("inspect m", "m: "),
        ("train --task none.tsv --out new", "none.tsv: "),
        ("train --task films.tsv --dev class7.tsv --out new", "class7.tsv:2: "),
        ("profile s --model marian --out new", "--model"),
        ("profile nowhere --out new", "nowhere"),
        ("profile s --lengths four --out new", "--lengths"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(here: Path, simnmt: Command, arguments: str, place: str) -> None:
    refused = simnmt("sti", *arguments.split())
    assert (refused.status, refused.out) == (2, "") and place in refused.err
    assert_one_line(refused.err)
    assert not list(here.glob("new*"))
