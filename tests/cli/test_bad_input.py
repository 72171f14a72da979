"""Whatever is wrong with the input: one line that begins with its place, status 2, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from simnmt.base.errors import InputError
from simnmt.cli import app
from simnmt.cli.options import parse_bytes, parse_duration, parse_integers, parse_rate, parse_share
from simnmt.scenario.errors import ScenarioError
from tests.command_line import Command, Tree, assert_complaint, assert_one_line

LENGTHS = "lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}"


@pytest.fixture
def refused(folder: Path, simnmt: Command, tree: Tree) -> Callable[..., None]:
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
            "small.yaml:12:22: devices.gateway.profile: ",
        ),
        (LENGTHS, f"{LENGTHS}\n    repeats: {{zipf: -1, over: 5}}", "small.yaml:9:21: workloads.news.repeats.zipf: "),
        (LENGTHS, f"{LENGTHS}\n    repeats: {{zipf: 1, over: 0}}", "small.yaml:9:30: workloads.news.repeats.over: "),
        (LENGTHS, f"{LENGTHS}\n    repeats: {{often: 1}}", "small.yaml:9:14: workloads.news.repeats: expected zipf and over"),
        (LENGTHS, f"{LENGTHS}\n    repeats: {{recorded: office.csv}}", "office.csv:1: no column text"),
        (
            LENGTHS,
            f"{LENGTHS}\n    arrivals: {{kind: poisson, characters_per_day: 5.0e+6}}",
            "small.yaml:9:15: workloads.news.arrivals: characters_per_day needs the characters",
        ),
        (
            LENGTHS,
            f"{LENGTHS}\n    arrivals: {{kind: poisson, rate_rps: 1, requests_per_month: 9}}",
            "small.yaml:9:64: workloads.news.arrivals.requests_per_month: the rate is stated twice",
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
        ("cloud.json", b"{", "cloud.json:1:1: "),
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


def test_of_several_faults_the_first_of_the_file_is_shown(folder: Path, simnmt: Command) -> None:
    text = (folder / "small.yaml").read_text()
    (folder / "small.yaml").write_text(text.replace("seed: 3", "sed: 3").replace("requests: 200", "requests: many"))
    done = simnmt("run", "small.yaml", "--replications", "0")
    assert done.status == 2
    assert done.err.startswith("simnmt: small.yaml:3:1: sed: ") and done.err.count("\n") == 1


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
def test_a_command_line_that_means_nothing(simnmt: Command, arguments: str, name: str) -> None:
    done = simnmt(*arguments.split())
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert name in done.err


@pytest.mark.parametrize("arguments", [(), ("corpus",), ("reproduce",)])
def test_no_verb_brings_the_help(simnmt: Command, arguments: tuple[str, ...]) -> None:
    done = simnmt(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"Usage: {' '.join(['simnmt', *arguments])} ")


TEXTS = st.text(max_size=400) | st.sampled_from(["a\nb", "\x1b[31m", "x" * 2_000, "Usage: a"])
PLACES = st.sampled_from([(None, None), (7, None), (7, 5)])


@given(st.sampled_from([InputError, ScenarioError]), TEXTS, st.none() | TEXTS, PLACES)
def test_an_input_error_is_one_short_line_with_its_place(
    kind: type[InputError], what: str, remedy: str | None, place: tuple[int | None, int | None]
) -> None:
    line, column = place
    error = kind(what, path="a file.yaml", line=line, column=column, remedy=remedy)

    def parser(verb: str) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr(app, "_parser", parser)
        patch.setattr(app.sys, "argv", ["simnmt", "run"])
        patch.setattr("builtins.print", lambda text, file: printed.append(f"{text}\n"))
        assert app._run() == 2
    (err,) = printed
    assert_one_line(err)
    assert err.startswith("simnmt: a file.yaml:" + "".join(f"{part}:" for part in place if part is not None))


def test_no_kind_of_input_error_formats_itself_otherwise() -> None:
    kinds = [InputError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {kind.__name__ for kind in kinds if "__str__" in vars(kind)} <= {"InputError", "ScenarioError"}


READERS = (parse_bytes, parse_rate, parse_duration, parse_share, parse_integers)


@pytest.mark.parametrize(
    ("read", "quantities"),
    [
        (parse_duration, {"600s": 600, "10m": 600, "10 min": 600, "2h": 7200, "1d": 86_400, "2.5ms": 0.0025}),
        (parse_bytes, {"256kB": 256_000, "1MB": 1_000_000, "2 GB": 2e9, "64KiB": 65_536, "0": 0}),
        (parse_rate, {"200MB/s": 2e8, "1.5 GB/s": 1.5e9, "2000kB/s": 2e6}),
        (parse_share, {"2%": 0.02}),
    ],
)
def test_quantities_have_units(read: Callable[[str], Any], quantities: dict[str, Any]) -> None:
    assert {text: read(text) for text in quantities} == pytest.approx(quantities)
    assert parse_integers("2,6,32") == (2, 6, 32)


@pytest.mark.parametrize("read", READERS)
def test_an_unknown_form_is_refused_with_the_forms_that_are_known(read: Callable[[str], Any]) -> None:
    for text in ["", "nan", "0x2", *(["200"] if read is not parse_integers else [])]:
        with pytest.raises(typer.BadParameter, match=r"write|give") as refused:
            read(text)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("verb", ["run", "trace import", "corpus fit", "profile compare", "sti shard"])
def test_help_names_arguments_without_their_types_and_the_options_on_messages(simnmt: Command, verb: str) -> None:
    text = simnmt(*verb.split(), "--help").out
    assert not re.search(r"<(?:str|path|list\[\w+\])>", text)
    assert "-q, --quiet" in text and "-v, --verbose" in text


@pytest.mark.parametrize("arguments", ["calibrate --out b.json --backend onnx", "run small.yaml --engine onnx"])
def test_a_value_that_is_no_choice_is_refused_without_the_words_of_a_library(
    folder: Path, simnmt: Command, arguments: str
) -> None:
    done = simnmt(*arguments.split())
    assert done.status == 2 and ": 'onnx' is not one of '" in done.err and "Value error" not in done.err
