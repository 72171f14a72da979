"""Whatever is wrong with the input: one line that begins with its place, status 2, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import assert_complaint, assert_one_line

LENGTHS = "lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}"


@pytest.fixture
def refused(folder: Path, simnmt: Callable[..., Any], tree: Callable[..., Any]) -> Callable[..., None]:
    """Runs a command that must be refused with one line, which names this place."""

    def check(place: str, *arguments: str) -> None:
        before = tree(folder)
        done = simnmt(*arguments)
        assert (done.status, done.out) == (2, "")
        assert_complaint(done.err)
        assert tree(folder) == before
        assert place in done.err.replace(f"{folder}/", "")

    return check


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("seed: 3", "sed: 3", "small.yaml:3:1: sed: "),
        ("cnmt: {}", "cnmt: {len_slop: 1}", "small.yaml:15:63: policies.cnmt.len_slop: "),
        ("policies: {edge", "policies: {egde", "small.yaml:15:12: policies.egde.kind: "),
        ("seed: 3", "seed: 3.5", "small.yaml:3:7: seed: "),
        ("requests: 200", "requests: 0", "small.yaml:4:11: requests: "),
        ("office.csv", "{constant_ms: .nan}", "small.yaml:10:31: networks.office.rtt.constant_ms:"),
        ("seed: 3", "seed: 3\nseed: 4", "small.yaml:4:1: seed: "),
        ("networks:", "networks: [", "small.yaml:11:1: "),
        ("seed: 3", "seed: !!python/object:x 3", "small.yaml:3:7: "),
        ("version: 1", "version: 2", "small.yaml:1:10: version: "),
        ("office.csv", "missing.csv", "small.yaml:10:17: networks.office.rtt: missing.csv: "),
        ("office.csv", "'@cp9'", "small.yaml:10:17: networks.office.rtt: @cp9: "),
        ("office.csv", "{csv: office.csv, rtt_column: rtt}", "office.csv:1:1: "),
        (LENGTHS, "lengths: {table: office.csv}", "office.csv:1: "),
        (
            "source: news.de, target: news.en, src_unit: word, tgt_unit: word",
            "table: '@en-zh-docs'",
            "small.yaml:12:22: devices.gateway.profile: gateway.json: ",
        ),
        ("profile: cloud.json", "profile: small.yaml", "small.yaml:13:20: devices.cloud.profile: small.yaml: "),
        ("profile: cloud.json", "profile: {news: none.json}", "small.yaml:13:27: devices.cloud.profile.news: none.json: "),
    ],
)
def test_a_scenario(folder: Path, refused: Callable[..., None], old: str, new: str, place: str) -> None:
    text = (folder / "small.yaml").read_text()
    assert text.count(old) == 1
    (folder / "small.yaml").write_text(text.replace(old, new))
    refused(place, "run", "small.yaml")


@pytest.mark.parametrize(
    ("file", "content", "place"),
    [
        ("small.yaml", b"name: caf\xe9\n", "small.yaml:1:10: "),
        ("small.yaml", b"- a\n- b\n", "small.yaml:1:1: "),
        ("office.csv", b"time_s,rtt_ms\n0,50\n1,-3\n", "office.csv:3:3: "),
        ("office.csv", b"time_s,rtt_ms\n0,50\n2,60\n1,55\n", "office.csv:4:1: "),
        ("office.csv", b"time_s,rtt_ms\n0,5\xff\n", "office.csv:2:4: "),
        ("news.de", b"a b\n", "small.yaml:8:14: workloads.news.lengths: news.de: "),
        ("news.de", b"a b\n" * 79 + b"caf\xe9\n", "news.de:80:4: "),
        ("cloud.json", b"{", "cloud.json:1:2: "),
        ("cloud.json", b'{"schema_version": 9}', "small.yaml:13:20: devices.cloud.profile: cloud.json: schema_version: "),
    ],
)
def test_a_file(folder: Path, refused: Callable[..., None], file: str, content: bytes, place: str) -> None:
    (folder / file).write_bytes(content)
    refused(place, "run", "small.yaml")


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("run small.yaml --requests 0", "--requests 0: requests: "),
        ("run small.yaml --set seed=[", "--set seed=[: "),
        ("run small.yaml --set polices.cnmt.len_slope=1", "--set polices.cnmt.len_slope=1: polices: "),
        ("run small.yaml --out full", "full: "),
        ("run nowhere.yaml", "nowhere.yaml: "),
        ("run full", "full: "),
        ("run @nosuch", "@nosuch: "),
        ("init full", "full: "),
        ("init nowhere/new.yaml", "nowhere/new.yaml: "),
        ("corpus fit news.de nowhere.en", "nowhere.en: "),
        ("corpus fit news.de news.en --unit words", "'words'"),
    ],
)
def test_arguments(folder: Path, refused: Callable[..., None], arguments: str, place: str) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "precious.txt").write_text("precious")
    refused(place, *arguments.split())


def test_several_faults_are_a_line_each(folder: Path, simnmt: Callable[..., Any]) -> None:
    text = (folder / "small.yaml").read_text()
    (folder / "small.yaml").write_text(text.replace("seed: 3", "sed: 3").replace("requests: 200", "requests: many"))
    done = simnmt("run", "small.yaml", "--replications", "0")
    assert done.status == 2
    places = ("simnmt: small.yaml:3:1: sed: ", "small.yaml:4:11: requests: ", "--replications 0: replications: ")
    assert all(line.startswith(place) for line, place in zip(done.err.splitlines(), places, strict=True))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("rum small.yaml", "rum"),
        ("run", "SCENARIO"),
        ("run small.yaml --request 5", "--requests"),
        ("run small.yaml --requests abc", "--requests"),
        ("corpus fat", "fat"),
    ],
)
def test_a_command_line_that_means_nothing(simnmt: Callable[..., Any], arguments: str, name: str) -> None:
    done = simnmt(*arguments.split())
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert name in done.err


@pytest.mark.parametrize("arguments", [(), ("corpus",), ("reproduce",)])
def test_no_verb_brings_the_help(simnmt: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    done = simnmt(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"Usage: {' '.join(['simnmt', *arguments])} ")
