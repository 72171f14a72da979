"""`simnmt sti plan`, as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.profile.profile_file import checked_profile, write_profile
from tests.profile.made_profile import whole_profile
from tests.profile.made_sti import sti_block

ASKED = ("sti", "plan", "--profile", "@odroid-sti", "--deadline", "200ms", "--preload", "2MB")


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Profiles of an encoder and of an encoder-decoder that are streamed, and of a model that is not."""
    place = tmp_path_factory.mktemp("profiles")
    bare = whole_profile()
    blocks = {"encoder": sti_block(), "translator": sti_block(6, 8, 512, 2048, decoder_layers=6), "plain": None}
    for name, block in blocks.items():
        write_profile(place / f"{name}.json", checked_profile(bare | ({} if block is None else {"sti": block})))
    return place


@pytest.fixture
def here(profiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with these profiles."""
    monkeypatch.chdir(tmp_path)
    for path in profiles.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_plan_its_budgets_and_its_pipeline_are_told(simnmt: Callable[..., Any]) -> None:
    told = simnmt(*ASKED)
    assert (told.status, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[0].startswith("@odroid-sti (inferred): ")
    assert lines[1] == "4 x 6 of 12 x 12, 24 shards, 128 tokens: 196.1 ms of 200 ms, without waiting"
    assert "Importance was not measured: slices and upgrades go in layer order." in lines
    rows = [line.split() for line in lines if line[:1].isdigit()][1:]
    assert [row[0] for row in rows] == [str(layer) for layer in range(4)]
    assert all(row[-1] == "0.00" for row in rows)
    disk, processor = (next(line for line in lines if line.startswith(row)) for row in ("io ", "compute "))
    assert [sign for sign in disk if sign.isdigit()] == list("123")
    assert [sign for sign in processor if sign.isdigit()] == list("0123")
    assert "." not in processor


def test_json_holds_the_plan_its_comparison_and_its_timeline(simnmt: Callable[..., Any]) -> None:
    document = json.loads(simnmt(*ASKED, "--compare", "--json").out)
    plan = document["plan"]
    assert [plan[name] for name in ("layers", "slices_per_layer", "deadline_s", "preload_bytes")] == [4, 6, 0.2, 2_000_000]
    assert len(plan["shards"]) == 24 and set(plan["shards"][0]) == {"layer", "slice", "bits", "preloaded"}
    assert [each["name"] for each in document["comparison"]][:2] == ["STI", "Load&Exec"]
    assert document["timeline"]["latency_s"] == plan["latency_s"]
    assert document["kind"] == "inferred"


@pytest.mark.parametrize(
    ("deadline_ms", "preload_mb", "more", "said"),
    [
        ("200", "2", ["--cold"], "The disk is too slow for the empty buffer"),
        ("200", "0.5", [], "The disk is too slow for a buffer of 0.5 MB"),
        ("200", "2", ["--cold", "--fill"], "Within the deadline the processor waits 24.77 ms for reads.\n"),
        ("200", "0.1", [], "The buffer is smaller than one shard of 2 bits (0.155 MB): nothing is preloaded."),
        ("2", "2", [], "One layer of one shard takes 10.73 ms already: nothing meets the deadline."),
        ("200", "0", [], "The deadline is missed by "),
        ("200", "0", [], "Planned to wait within the deadline (--fill), a smaller submodel may keep it."),
        ("900", "2", ["--length", "4000"], " tokens were measured: 4000 are taken to cost in proportion."),
    ],
)
def test_what_a_reader_has_to_know_is_said(
    simnmt: Callable[..., Any], deadline_ms: str, preload_mb: str, more: list[str], said: str
) -> None:
    told = simnmt(*ASKED[:4], "--deadline", f"{deadline_ms}ms", "--preload", f"{preload_mb}MB", *more)
    assert told.status == 0
    assert said in told.out


def test_a_profile_of_an_encoder_decoder_is_planned_for_its_steps(here: Path, simnmt: Callable[..., Any]) -> None:
    asked = ("sti", "plan", "--profile", "translator.json", "--deadline", "150ms", "--preload", "3MB")
    out = simnmt(*asked, "--steps", "10").out
    assert " decoder layers as wide of 6 x 8, " in out
    assert "16 tokens, 10 decoder steps" in out or "32 tokens, 10 decoder steps" in out
    assert "~ embedding, head, later decoder steps" in out
    assert "besides the layers: 0.4 ms of embedding, 2 ms of head in each step" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "plain.json", "--deadline", "9ms", "--preload", "1MB"], "no costs of streaming its model"),
        (
            ["--profile", "encoder.json", "--deadline", "9ms", "--preload", "-1MB"],
            "Invalid value for '--preload': '-1MB' is not such a quantity",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(
    here: Path, simnmt: Callable[..., Any], arguments: list[str], said: str
) -> None:
    told = simnmt("sti", "plan", *arguments)
    assert (told.status, told.out) == (2, "")
    assert said in told.err
    assert told.err.count("\n") == 1
