"""`simnmt sti run`: what it prints, as tables and as JSON, and what it refuses in a line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from simnmt.base.errors import InputError
from simnmt.calibrate import processor_use
from simnmt.cli import sti_costs
from simnmt.cli.sti import run
from simnmt.cli.sti_costs import CostSource, run_costs
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import checked_profile, write_profile
from simnmt.profile.streaming_cost import (
    BITS,
    StiCost,
)
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.errors import StoreError, StreamingError
from simnmt.streaming.store import ShardStore, write_store
from simnmt.streaming.texts import learn_pieces
from tests.profile.made_profile import whole_profile
from tests.profile.made_sti import sti_block
from tests.streaming.made_encoder import made_weights


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs do not decide what these tests see."""
    monkeypatch.setattr(processor_use, "others_cpus", lambda: 0.0)


app = typer.Typer()
app.command()(run)
FAST = ("--deadline", "2ms", "--preload", "2kB", "--pace", "20MB/s", "--length", "6")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stores") / "store"
    pieces = learn_pieces(["a good film", "a bad film", "it is good"] * 9, 40)
    weights = made_weights(layers=3, heads=4, width=32, ffn=64, vocabulary=pieces.size)
    write_store(replace(weights, files=pieces.files), made)
    return made


def done(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*arguments: str) -> dict[str, Any]:
    return dict(json.loads(done(*arguments, "--json")))


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs that do not change, of a disk too slow for more bits without waiting."""

    def known(store: ShardStore, *others: Any) -> CostSource:
        sizes = {bits: round(store.mean_size(bits)) for bits in BITS}
        cost = StiCost(
            store.geometry, {bits: size / 2e6 for bits, size in sizes.items()}, {6: (4e-4, 8e-4, 12e-4, 16e-4)}, sizes
        )
        return CostSource("made up", "synthetic", "made up", cost, pace_bytes_per_s=2e6)

    monkeypatch.setattr(sti_costs, "_measure", known)


@pytest.mark.parametrize(
    ("more", "remark"),
    [
        ((), "even 2 bits cannot be read in time, so all reads have 2 bits and the processor waits"),
        (("--fill",), "even 2 bits everywhere would make the processor wait; the deadline leaves time for more"),
    ],
)
def test_reads_of_2_bits_are_reported_only_where_the_plan_has_them(
    path: Path, slow_disk: None, more: tuple[str, ...], remark: str
) -> None:
    document = as_json(str(path), "--deadline", "20ms", "--preload", "0", "--length", "6", "--turns", "2", *more)
    plans = [turn["plan"] for turn in document["turns"]]
    assert all(plan["short_of_io"] for plan in plans)
    assert [{shard["bits"] for shard in plan["shards"]} == {2} for plan in plans] == [not more] * 2
    assert [text for text in document["remarks"] if "2 bits" in text] == [f"turn 1, 2: {remark}"]


def test_the_json_holds_plans_and_executions(path: Path) -> None:
    document = as_json(str(path), *FAST, "--turns", "2")
    assert document["costs"] == {"name": "this box, just now", "kind": "measured", "importance": False}
    assert [turn["plan"]["length"] for turn in document["turns"]] == [6, 6]
    for turn in document["turns"]:
        execution = turn["execution"]
        assert len(execution["layers"]) == turn["plan"]["layers"]
        assert execution["latency_s"] >= sum(layer["unpack_s"] + layer["forward_s"] for layer in execution["layers"])
        assert execution["stall_s"] == pytest.approx(sum(layer["wait_s"] for layer in execution["layers"]))


def test_a_text_has_the_answer_of_the_same_text_in_a_task(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With costs that do not change, so that the plans are the same."""

    def known(store: ShardStore, *others: Any) -> CostSource:
        sizes = {bits: round(store.mean_size(bits)) for bits in BITS}
        io_s = {bits: size / 2e7 for bits, size in sizes.items()}
        cost = StiCost(store.geometry, io_s, {6: (1e-4, 2e-4, 3e-4, 4e-4)}, sizes)
        return CostSource("made up", "synthetic", "made up", cost, pace_bytes_per_s=2e7)

    monkeypatch.setattr(sti_costs, "_measure", known)
    tsv = tmp_path / "task.tsv"
    tsv.write_text("sentence\tlabel\na good film\t1\nit is bad\t0\nmore\t0\n", encoding="utf-8")
    by_text = as_json(str(path), *FAST, "--turns", "2", "--text", "a good film", "--text", "it is bad")["turns"]
    by_task = as_json(str(path), *FAST, "--turns", "2", "--task", str(tsv))["turns"]
    assert [turn["logits"] for turn in by_text] == [turn["logits"] for turn in by_task]
    assert by_text[0]["logits"] != by_text[1]["logits"]
    [other] = as_json(str(path), *FAST, "--turns", "1", "--text", "it is bad", "--cold")["turns"]
    assert (other["held"], other["logits"]) == (0, by_text[1]["logits"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--text", "a", "--task", "b"), "--text and --task: both say what is classified"),
        (("--deadline", "inf"), "'inf' is not a time"),
        (("--preload", "nan"), "write it as 256kB"),
        (("--profile", "nowhere.json"), "nowhere.json"),
    ],
)
def test_what_cannot_be_run_is_refused(path: Path, options: tuple[str, ...], told: str) -> None:
    refused = CliRunner().invoke(app, [str(path), *FAST, *options])
    fault = str(refused.exception) if isinstance(refused.exception, InputError) else refused.stderr
    assert refused.exit_code and told in " ".join(fault.replace("│", " ").split())


def test_a_profile_of_another_model_or_pace_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def profiled(fingerprint: str | None) -> DeviceProfile:
        block = sti_block(bytes_per_s=8e6) | {"fingerprint": fingerprint}
        return checked_profile(whole_profile() | {"sti": block})

    monkeypatch.setattr("simnmt.profile.profile_file.read_profile", lambda name: profiled(None))
    with ShardStore(path) as store:
        encoder = ElasticEncoder(store.configuration, store.resident())
        source = run_costs(store, encoder, "a-box.json", None, None, 1)
        assert (max(source.cost.comp_s), source.pace_bytes_per_s) == (32, 8e6)
        with pytest.raises(StreamingError, match="--pace 9MB/s: the profile's reads were measured at 8 MB/s"):
            run_costs(store, encoder, "a-box.json", None, 9e6, 1)
        monkeypatch.setattr("simnmt.profile.profile_file.read_profile", lambda name: profiled("0" * 64))
        with pytest.raises(StoreError, match="shards of another model"):
            run_costs(store, encoder, "a-box.json", None, None, 1)


def test_a_busy_box_and_a_doubtful_profile_are_warned_of(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that computes takes the processor and the disk from the pipeline."""
    doubtful = sti_block(3, 4, 32, 64, lengths=(6,), bytes_per_s=2e7, importance=False) | {"fingerprint": None}
    doubtful["compute"]["heldout_error"] = 0.25
    write_profile(tmp_path / "p.json", checked_profile(whole_profile() | {"sti": doubtful}))
    monkeypatch.setattr(processor_use, "others_cpus", lambda: 50.0)
    plan = ("--deadline", "50ms", "--preload", "2kB", "--turns", "1")
    result = CliRunner().invoke(
        app, [str(path), *plan, "--profile", str(tmp_path / "p.json"), "--json"], catch_exceptions=False
    )
    warnings = json.loads(result.stdout)["warnings"]
    assert warnings == [
        "sti: a held-out error of 25 % on whole submodels, above 10 % (measure again)",
        "the box was busy: other programs used 50.0 CPUs before or after the run (repeat on a quiet box)",
    ]
    assert result.stderr.splitlines() == [f"simnmt: warning: {warning}" for warning in warnings]
