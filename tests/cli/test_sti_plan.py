"""`simnmt sti plan` and `simnmt sti run`: what they print, as tables and as JSON, and what they refuse in a line."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate.box import BusyWatch
from simnmt.profile.device_profile import checked_profile, write_profile
from simnmt.streaming.store import write_store
from simnmt.streaming.texts import learn_pieces
from tests.command_line import Command, assert_one_line
from tests.profile.made_profile import whole_profile
from tests.profile.made_sti import sti_block
from tests.streaming.made_encoder import made_weights

PLAN = ("sti", "plan", "--profile", "@odroid-sti", "--deadline", "200ms", "--preload", "2MB")
RUN = ("sti", "run", "s", "--profile", "box.json", "--deadline", "6ms", "--preload", "2kB")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store `s`, a task, and profiles: of an encoder, of an encoder-decoder, of doubtful costs, and of no streamed model."""
    place = tmp_path_factory.mktemp("made")
    pieces = learn_pieces(["a good film", "a bad film", "it is good"] * 9, 40)
    write_store(
        replace(made_weights(layers=3, heads=4, width=32, ffn=64, vocabulary=pieces.size), files=pieces.files), place / "s"
    )
    box = sti_block(3, 4, 32, 64, lengths=(6,), bytes_per_s=2e7, importance=False) | {"fingerprint": None}
    doubtful, slow = copy.deepcopy(box), sti_block(3, 4, 32, 64, lengths=(6,), bytes_per_s=2e5, importance=False)
    doubtful["compute"]["heldout_error"] = 0.25
    blocks = {
        "encoder": sti_block(),
        "translator": sti_block(6, 8, 512, 2048, decoder_layers=6),
        "plain": None,
        "box": box,
        "slow": slow | {"fingerprint": None},
        "doubtful": doubtful,
        "another": box | {"fingerprint": "0" * 64},
    }
    for name, block in blocks.items():
        write_profile(place / f"{name}.json", checked_profile(whole_profile() | ({} if block is None else {"sti": block})))
    (place / "task.tsv").write_text("sentence\tlabel\na good film\t1\nit is bad\t0\nmore\t0\n")
    return place


@pytest.fixture(autouse=True)
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with all of these; other programs do not decide what these tests see."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(BusyWatch, "over_span", lambda: 0.0)


def values(out: str) -> dict[str, str]:
    """Names and values above the first table."""
    lines = [line.partition("  ") for line in out.partition("\n\n")[0].splitlines()]
    return {name: value.strip() for name, _, value in lines}


def test_a_plan_is_printed_with_its_layers(simnmt: Command) -> None:
    done = simnmt(*PLAN)
    assert (done.status, done.err) == (0, "")
    shown = {name: value.strip() for name, value in values(done.out).items()}
    assert (shown["profile"], shown["kind"]) == ("@odroid-sti", "inferred")
    assert [shown[name] for name in ("layers", "slices", "shards", "latency ms", "deadline met")] == [
        "4",
        "6",
        "24",
        "196.1",
        "yes",
    ]
    assert done.out.endswith("\nImportance was not measured: slices and upgrades go in layer order.\n")
    assert [line.split()[0] for line in done.out.splitlines() if line.strip()[:1].isdigit()] == ["0", "1", "2", "3"]


def test_json_holds_the_plan_its_comparison_and_its_timeline(simnmt: Command) -> None:
    assert "\nLoad&Exec " in simnmt(*PLAN, "--compare").out
    document = json.loads(simnmt(*PLAN, "--compare", "--json").out)
    plan = document["plan"]
    assert [plan[name] for name in ("layers", "slices_per_layer", "deadline_s", "preload_bytes")] == [4, 6, 0.2, 2_000_000]
    assert len(plan["shards"]) == 24 and set(plan["shards"][0]) == {"layer", "slice", "bits", "preloaded"}
    assert [method["name"] for method in document["comparison"]][:2] == ["STI", "Load&Exec"]
    assert document["timeline"]["latency_s"] == plan["latency_s"]
    assert document["kind"] == "inferred"


@pytest.mark.parametrize(
    ("deadline_ms", "preload_mb", "more", "remark"),
    [
        ("200", "2", ["--cold"], "The disk is too slow for the empty buffer"),
        ("200", "0.5", [], "The disk is too slow for a buffer of 0.5 MB"),
        ("200", "2", ["--cold", "--fill"], "Within the deadline the processor waits 24.77 ms for reads.\n"),
        ("200", "0.1", [], "The buffer is smaller than one shard of 2 bits (0.155 MB): nothing is preloaded."),
        ("2", "2", [], "One layer of one shard takes 10.73 ms already: nothing meets the deadline."),
        ("200", "0", [], "Planned to wait within the deadline (--fill), a smaller submodel may keep it."),
        ("900", "2", ["--length", "4000"], " tokens were measured: 4000 are taken to cost in proportion."),
    ],
)
def test_what_a_reader_has_to_know_is_printed(
    simnmt: Command, deadline_ms: str, preload_mb: str, more: list[str], remark: str
) -> None:
    done = simnmt(*PLAN[:4], "--deadline", f"{deadline_ms}ms", "--preload", f"{preload_mb}MB", *more)
    assert done.status == 0 and remark in done.out


def test_a_profile_of_an_encoder_decoder_is_planned_for_its_steps(simnmt: Command) -> None:
    command = ("sti", "plan", "--profile", "translator.json", "--deadline", "150ms", "--preload", "3MB")
    shown = values(simnmt(*command, "--steps", "10").out)
    assert shown["decoder steps"] == "10" and shown["decoder layers"] == shown["layers"]
    assert (shown["embedding ms"], shown["head ms"]) == ("0.4", "2")


@pytest.mark.parametrize("more", [(), ("--fill",)])
def test_reads_that_even_2_bits_delay_are_reported(simnmt: Command, more: tuple[str, ...]) -> None:
    command = ("sti", "run", "s", "--profile", "slow.json", "--deadline", "60ms", "--preload", "0", "--turns", "2", *more)
    document = json.loads(simnmt(*command, "--json").out)
    plans = [turn["plan"] for turn in document["turns"]]
    assert all(plan["short_of_io"] for plan in plans)
    assert [{shard["bits"] for shard in plan["shards"]} == {2} for plan in plans] == [not more] * 2
    assert "turn 1, 2: even 2 bits everywhere would make the processor wait for reads" in document["remarks"]


def test_turns_are_printed_planned_and_executed(simnmt: Command) -> None:
    done = simnmt(*RUN, "--turns", "2")
    assert done.status == 0, done.err
    assert "\nturns:\nturn  layers  slices  latency ms " in done.out and "\nlayers of the last turn:\n" in done.out
    document = json.loads(simnmt(*RUN, "--turns", "2", "--json").out)
    assert (document["kind"], document["pace_bytes_per_s"]) == ("synthetic", 2e7)
    for turn in document["turns"]:
        plan, execution = turn["plan"], turn["execution"]
        assert (plan["length"], len(execution["layers"])) == (6, plan["layers"])
        assert execution["latency_s"] >= sum(layer["unpack_s"] + layer["forward_s"] for layer in execution["layers"])
        assert execution["stall_s"] == pytest.approx(sum(layer["wait_s"] for layer in execution["layers"]))


def test_a_text_has_the_answer_of_the_same_text_in_a_task(simnmt: Command) -> None:
    def turns(*options: str) -> Any:
        return json.loads(simnmt(*RUN, *options, "--json").out)["turns"]

    by_text = turns("--turns", "2", "--text", "a good film", "--text", "it is bad")
    by_task = turns("--turns", "2", "--task", "task.tsv")
    assert [turn["logits"] for turn in by_text] == [turn["logits"] for turn in by_task]
    assert by_text[0]["logits"] != by_text[1]["logits"]
    [other] = turns("--turns", "1", "--text", "it is bad", "--cold")
    assert (other["held"], other["logits"]) == (0, by_text[1]["logits"])


def test_a_busy_box_and_a_doubtful_profile_are_warned_of(simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BusyWatch, "over_span", lambda: 50.0)
    plan = ("--deadline", "50ms", "--preload", "2kB", "--turns", "1")
    done = simnmt("sti", "run", "s", *plan, "--profile", "doubtful.json", "--json")
    warnings = json.loads(done.out)["warnings"]
    assert warnings == [
        "sti: a held-out error of 25 % on whole submodels, above 10 % (measure again)",
        "the box was busy: other programs used 50.0 CPUs before or after the run (repeat on a quiet box)",
    ]
    assert done.err.splitlines() == [f"simnmt: warning: {warning}" for warning in warnings]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("plan --profile plain.json --deadline 9ms --preload 1MB", "block sti"),
        ("plan --profile encoder.json --deadline 9ms --preload -1MB", "--preload"),
        ("run s --deadline 9ms --preload 1kB", "--profile"),
        ("run s --profile box.json --deadline 9ms --preload 1kB --text a --task b", "--text"),
        ("run s --profile box.json --deadline inf --preload 1kB", "--deadline"),
        ("run s --profile nowhere.json --deadline 9ms --preload 1kB", "nowhere.json"),
        ("run s --profile another.json --deadline 9ms --preload 1kB", "s: "),
        ("run s --profile box.json --deadline 9ms --preload 2kB --cache 1kB", "--cache"),
        ("run s --profile box.json --deadline 9ms --preload 1kB --length 9999", "9999"),
        ("run s --profile box.json --deadline 9ms --preload 1kB --pace 9MB/s", "--pace"),
    ],
)
def test_bad_input_is_one_line(simnmt: Command, arguments: str, place: str) -> None:
    refused = simnmt("sti", *arguments.split())
    assert (refused.status, refused.out) == (2, "") and place in refused.err
    assert_one_line(refused.err)
