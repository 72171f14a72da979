"""`simnmt sti shard` and `simnmt sti inspect`, as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.streaming.encoder_folder import save_encoder
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import PIECES_FILE, learn_pieces
from tests.streaming.made_encoder import made_weights

PIECES = learn_pieces([f"{one} and {other}" for one in ("red", "blue", "green") for other in ("up", "down", "left")], 30)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models as `sti train` writes them."""
    place = tmp_path_factory.mktemp("models")
    for name, seed in (("m", 3), ("other", 4)):
        made = made_weights(vocabulary=PIECES.size, seed=seed)
        (place / name).mkdir()
        (place / name / PIECES_FILE).write_bytes(PIECES.files[PIECES_FILE])
        save_encoder(place / name, made, {"label_names": ["no", "yes"]})
    return place


@pytest.fixture
def here(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, beside the models."""
    monkeypatch.chdir(tmp_path)
    for name in ("m", "other"):
        (tmp_path / name).symlink_to(models / name)
    return tmp_path


def test_a_model_is_sharded_and_described_again_by_inspect(here: Path, simnmt: Callable[..., Any]) -> None:
    made = simnmt("sti", "shard", "m", "--out", "s")
    assert (made.status, made.err) == (0, "")
    assert made.out.startswith("m: elastic, 3 layers of 4 shards, width 16, 32 neurons; 512 weights a shard\n")
    assert "\n72 records, " in made.out
    assert simnmt("sti", "inspect", "s").out == made.out
    checked = simnmt("sti", "inspect", "s", "--check", "--layers")
    assert checked.status == 0
    assert checked.out.endswith("checked: all 72 records and the files beside them are intact\n")
    assert "layer " in checked.out
    told = json.loads(simnmt("sti", "inspect", "s", "--json").out)
    assert [each["bits"] for each in told["by_bits"]] == [2, 3, 4, 5, 6, 32]
    errors = [each["rmse_over_s"] for each in told["by_bits"]]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(0.37, abs=0.05)
    assert errors[-1] == 0
    assert told["shards_bytes"] == (here / "s" / "shards.bin").stat().st_size
    with ShardStore("s") as store:
        assert store.label_names == ("no", "yes")
        texts = ["red and down"]
        assert store.tokenizer().encode(texts, 9) == PIECES.encode(texts, 9)


def test_fewer_fidelities_may_be_taken(here: Path, simnmt: Callable[..., Any]) -> None:
    made = simnmt("sti", "shard", "m", "--out", "s", "--bits", "6,2", "--json")
    assert [each["bits"] for each in json.loads(made.out)["by_bits"]] == [2, 6]
    unknown = simnmt("sti", "shard", "m", "--out", "t", "--bits", "two").err
    assert "'--bits': 'two' is not a list; give whole numbers, as in 2,6,32 (see simnmt sti shard --help)\n" in unknown
    assert simnmt("sti", "shard", "m", "--out", "t", "--bits", "2,7").err == (
        "simnmt: no shards of 2, 7 bits (choose from 2, 3, 4, 5, 6, 32)\n"
    )


def test_a_damaged_store_is_told_in_one_line(here: Path, simnmt: Callable[..., Any]) -> None:
    simnmt("sti", "shard", "m", "--out", "s", "--bits", "2,32")
    path = here / "s" / "shards.bin"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    told = simnmt("sti", "inspect", "s", "--check")
    assert told.status == 2
    assert told.err == (
        "simnmt: s/shards.bin: shard 0 of layer 0 at 2 bits is not what was written: its checksum differs"
        " (shard the model again with simnmt sti shard)\n"
    )
    path.write_bytes(content[:-64])
    assert "shards.bin: damaged: " in simnmt("sti", "inspect", "s").err
    assert "m: no shard store: " in simnmt("sti", "inspect", "m").err


SMALL = ("--layers", "2", "--slices", "2", "--width", "8", "--ffn", "8", "--vocab", "30", "--positions", "8", "--threads", "1")


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a small task."""
    monkeypatch.chdir(tmp_path)
    rows = [f"a {word} {thing}\t{label}" for word, label in (("good", 1), ("bad", 0)) for thing in ("film", "book", "day")]
    (tmp_path / "films.tsv").write_text("sentence\tlabel\n" + "\n".join(rows * 4) + "\n")
    (tmp_path / "other.tsv").write_text(f"sentence\tlabel\n{rows[0]}\na bad good day\t0\n")
    return tmp_path


def test_a_model_is_trained_and_the_same_command_finds_it_done(at_home: Path, simnmt: Callable[..., Any]) -> None:
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
    assert account["training"]["epochs"] == 2 and account["judged"]["examples"] == 2
    assert account == json.loads((at_home / "model" / "training.json").read_text())


@pytest.mark.parametrize(("dev", "judged"), [((), "the examples it was trained on"), (("--dev", "other.tsv"), "other.tsv")])
def test_a_model_no_better_than_the_commonest_class_is_warned_of(
    at_home: Path, simnmt: Callable[..., Any], dev: tuple[str, ...], judged: str
) -> None:
    """Labels that follow from nothing in the text cannot be learnt."""
    for name in ("noise.tsv", "other.tsv"):
        rows = [f"{'a b' if name == 'noise.tsv' else 'c d'} film\t{number % 2}" for number in range(24)]
        (at_home / name).write_text("sentence\tlabel\n" + "\n".join(rows) + "\n")
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
    given: tuple[str, ...], said: str, at_home: Path, simnmt: Callable[..., Any]
) -> None:
    (at_home / "dev.tsv").write_text("sentence\tlabel\nx\t7\n")
    told = simnmt("sti", "train", "--out", "model", *SMALL, *given)
    assert (told.status, told.out) == (2, "") and said in told.err and len(told.err.splitlines()) == 1
    assert not (at_home / "model").exists()


def test_an_interrupt_says_what_is_kept(at_home: Path, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:

    from simnmt.nmt.training import trainer

    step = trainer.Learner.step

    def interrupted(self: Any, rows: Any, number: int, share: float) -> float:
        if number == 3:
            raise KeyboardInterrupt
        return step(self, rows, number, share)

    monkeypatch.setattr(trainer, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(trainer.Learner, "step", interrupted)
    given = ("--batch-tokens", "32", "--epochs", "2", *SMALL)
    told = simnmt("sti", "train", "--task", "films.tsv", "--out", "model", *given)
    assert told.status == 130 and "the same command goes on from the last save" in told.err
