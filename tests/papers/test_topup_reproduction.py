"""Top-up batching reproduced in small: JSON, text, page, and `simnmt reproduce topup`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.papers.fni import offline, online
from simnmt.papers.fni.devices import decoders
from simnmt.papers.fni.topup import Reproduction, reproduce
from simnmt.profile.profile_file import write_profile
from tests.browser import part_of, rows_of
from tests.papers.fni_stand_ins import profile

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module", autouse=True)
def small_sizes() -> Iterator[None]:
    """Use one seed of a fifth of the paper's sets, whose occupancies are within the claims' bounds, and one online run."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(offline, "SEEDS", (1,))
        patched.setattr(offline, "SENTENCES", {"europarl": 6_000, "opensubtitles": 10_000})
        patched.setattr(online, "SEEDS", (1,))
        yield


@pytest.fixture(scope="module")
def reproduction() -> Reproduction:
    profiles = [profile(HOSTILE, box=HOSTILE), profile("five", beam=5, most=64, box=HOSTILE), profile("silent", step=False)]
    return reproduce(profiles=profiles, requests=120)


@pytest.fixture(scope="module")
def document(reproduction: Reproduction) -> dict[str, Any]:
    return reproduction.report().document()


@pytest.fixture(scope="module")
def page(reproduction: Reproduction) -> str:
    return reproduction.report().page()


def test_every_device_with_batch_costs_has_all_its_numbers(document: dict[str, Any]) -> None:
    tables = {table["id"]: table["rows"] for table in document["tables"]}
    assert [(device["device"], device["beam"], device["profile"]) for device in document["devices"]] == [
        (HOSTILE, 1, HOSTILE), (HOSTILE, 5, "five"),
    ]  # fmt: skip
    assert len(tables["speeds"]) == 2 * 2 * 6 and len(tables["refill-limits"]) == 2 * 2 * 4
    assert len(tables["p95-load"]) == 2 * 2 * 5, "two sets, two p95s, five strategies, with the least beam alone"
    assert all(row["relative"] == 1.0 for row in tables["speeds"] if row["strategy"] == "mini")
    assert all(sum(row["share_by_active"]) == pytest.approx(1.0) for row in tables["active"])
    printed = [row for row in tables["occupancies"] if row["published"] is not None]
    assert len(printed) == 3
    assert all(abs(row["ours"] - row["published"]) < 0.04 and abs(row["ours"] - row["stated"]) < 0.02 for row in printed)


def test_claims_have_distinct_ids_and_a_verdict(reproduction: Reproduction, document: dict[str, Any]) -> None:
    assert len({record.id for record in reproduction.claims}) == len(reproduction.claims) == 7 + 8 + 1
    assert {record.verdict for record in reproduction.claims} <= {"holds", "does not hold", "not measurable here"}
    judged = {record.verdict for record in reproduction.claims if record.device}
    assert judged == {"not measurable here"}, "120 sentences are one batch"
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_without_a_profile_with_batch_costs_the_occupancies_remain(reproduction: Reproduction) -> None:
    bare = replace(
        reproduction,
        decoders=decoders([profile("silent", step=False)]),
        speeds={},
        refill_limits=[],
        curves=[],
        load_limits=[],
        claims=[record for record in reproduction.claims if not record.device],
    ).report()
    assert any("no speeds are known" in note for note in bare.notes)
    assert "a second" not in bare.text().split("Holds: ")[0]
    page = bare.page()
    assert 'id="figure-8"' in page and 'id="figures-6-7"' not in page and 'id="p95-load"' not in page


def test_every_claim_is_on_the_page_with_its_verdict_and_hostile_names_are_escaped(
    reproduction: Reproduction, page: str
) -> None:
    shown = re.findall(r'data-column="verdict" data-outcome="([^"]*)"', page)
    assert sorted(shown) == sorted(record.verdict for record in reproduction.claims)
    assert HOSTILE not in page and "&lt;img src=x" in page
    assert page == reproduction.report().page()
    assert len(page.encode()) < 4_000_000 and not re.search(r'(src|href)="https?:', page)


def test_published_stated_and_our_occupancies_are_in_one_row(page: str) -> None:
    rows = {row[0]: row[1:] for row in rows_of(part_of(page, "occupancies"))}
    assert rows["Europarl maxi, full, %"][:2] == ["42.0", "42.5"] and "10 300" in " ".join(rows["Europarl maxi, steps"])
    loads = part_of(page, "p95-load")
    assert loads.count("the most") >= 4, "one a line"


def test_doubts_about_step_costs_are_shown_with_the_device_and_its_claims(reproduction: Reproduction) -> None:
    sound = profile("five", beam=5, box="b")
    assert sound.step is not None
    step = sound.step.model_copy(update={"kind": "measured", "heldout_error": 0.3})
    (doubtful,) = decoders([sound.model_copy(update={"step": step})], beams=(5,))
    assert doubtful.shown_kind == "measured, doubtful"
    claims = [replace(record, basis="measured", device=record.device and "five") for record in reproduction.claims]
    bare = replace(reproduction, decoders=[doubtful], speeds={}, refill_limits=[], curves=[], load_limits=[], claims=claims)
    [doubt] = bare.report().document()["doubts"]
    assert (doubt["profile"], doubt["kind"], doubt["devices"]) == ("five", "measured", ["five"])
    assert "step: a held-out error of 30 %, above 10 % (measure again)" in doubt["warnings"]
    page = bare.report().page()
    assert "<li>step: a held-out error of 30 %, above 10 % (measure again)</li>" in page
    of_device = sum(record.device == "five" for record in claims)
    assert page.count('class="kind kind-measured-doubtful"') == of_device + 1 > 1, "its claims and its row of the devices"
    assert 'id="doubts"' not in replace(bare, decoders=[]).report().page()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(offline, "SENTENCES", {"europarl": 600, "opensubtitles": 600})
    write_profile(tmp_path / "mine.json", profile("mine"))
    return tmp_path


def run(*words: str) -> Any:
    from typer.testing import CliRunner

    from simnmt.cli.reproduce import app

    return CliRunner().invoke(app, ["topup", *words])


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--requests", "50"), "50 requests: too few"),
        (("--profile", "nowhere.json"), "nowhere.json"),
    ],
)
def test_wrong_options_are_refused_in_one_line_and_write_nothing(written: Path, words: tuple[str, ...], what: str) -> None:
    from simnmt.base.errors import InputError

    done = run(*words)
    fault = str(done.exception) if isinstance(done.exception, InputError) else done.stderr
    assert done.exit_code and what in " ".join(fault.split())
    assert [path.name for path in written.iterdir()] == ["mine.json"]
