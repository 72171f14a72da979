"""Whatever is wrong with the input: one line that says where, what and what to do, status 2, and nothing is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import assert_complaint

LENGTHS = "lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}"


PLACES = {
    "{lengths}": "small.yaml:8:14: workloads.news.lengths: ",
    "{rtt}": "small.yaml:10:17: networks.office.rtt: ",
    "{cloud}": "small.yaml:13:20: devices.cloud.profile: ",
}


@pytest.fixture
def refused(folder: Path, simnmt: Callable[..., Any], tree: Callable[..., Any]) -> Callable[..., None]:
    """Runs a command that must be refused with one line; `...` in the complaint leaves words out."""

    def check(complaint: str, *arguments: str) -> None:
        before = tree(folder)
        done = simnmt(*arguments)
        assert (done.status, done.out) == (2, "")
        assert_complaint(done.err)
        assert tree(folder) == before
        for place, text in PLACES.items():
            complaint = complaint.replace(place, text)
        pattern = ".*".join(map(re.escape, f"simnmt: {complaint}\n".split("...")))
        said = done.err.replace(f"{folder}/", "{here}/")
        assert re.fullmatch(pattern, said), f"{said}is not\n{complaint}"

    return check


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("seed: 3", "sed: 3", "small.yaml:3:1: sed: unknown key (did you mean seed?)"),
        ("cnmt: {}", "cnmt: {len_slop: 1}", "small.yaml:15:63: policies.cnmt.len_slop: unknown key (did you mean len_slope?)"),
        (
            "policies: {edge",
            "policies: {egde",
            "small.yaml:15:12: policies.egde.kind: missing key (one of edge, cloud, fixed, oracle,...",
        ),
        ("seed: 3", "seed: three", "small.yaml:3:7: seed: expected a whole number, got the text 'three'"),
        ("seed: 3", "seed: 3.5", "small.yaml:3:7: seed: expected a whole number, got 3.5"),
        (
            "requests: 200",
            "requests: '200'",
            "small.yaml:4:11: requests: expected a whole number, got...",
        ),
        ("requests: 200", "requests: 0", "small.yaml:4:11: requests: must be >= 1, got 0"),
        ("office.csv", "{constant_ms: 50ms}", "small.yaml:10:31: networks.office.rtt.constant_ms:..."),
        ("office.csv", "{constant_ms: -50}", "small.yaml:10:31: networks.office.rtt.constant_ms: must be >= 1e-06, got -50"),
        (
            "office.csv",
            "{constant_ms: .nan}",
            "small.yaml:10:31: networks.office.rtt.constant_ms:...",
        ),
        (
            "office.csv}",
            "office.csv, uplink_mbps: 0}",
            "small.yaml:10:42: networks.office.uplink_mbps: must be >= 1e-06, got 0",
        ),
        ("seed: 3", "seed: 3\nseed: 4", "small.yaml:4:1: seed: given twice..."),
        (
            "rtt: office.csv",
            "rtt: office.csv, rtt: office.csv",
            "small.yaml:10:29: networks.office.rtt: given twice...",
        ),
        ("networks:", "networks: [", "small.yaml:11:1: ..."),
        ("seed: 3", "seed: !!python/object:x 3", "small.yaml:3:7: tags... (remove the tag)"),
        ("src_unit: word", "src_unit: words", "small.yaml:8:59: workloads.news.lengths.src_unit:... (did you mean word?)"),
        ("{}, naive", "{kind: edge, x: 1}, naive", "small.yaml:15:54: policies.oracle.x: unknown key (known: kind)"),
        ("office.csv}", "office.csv, uplink_mbps: 1e-300}", "small.yaml:10:42: networks.office.uplink_mbps: must be..."),
        ("version: 1", "version: 2", "small.yaml:1:10: version: must be 1, got 2"),
        ("office.csv", "missing.csv", "{rtt}{here}/missing.csv: cannot be read:... (check the path)"),
        ("office.csv", "'@cp9'", "{rtt}@cp9: nothing of... (did you mean @cp2?)"),
        ("office.csv", "{csv: office.csv, rtt_column: rtt}", "{here}/office.csv:1:1: no column rtt (did you mean rtt_ms?)"),
        (
            "office.csv",
            "{csv: office.csv, rtt_unit: s}",
            "{rtt}{here}/office.csv: the median of rtt_ms would be 82 s;... (set rtt_unit: ms)",
        ),
        ("source: news.de", "source: missing.de", "{lengths}{here}/missing.de: no such file (check the path)"),
        (LENGTHS, 'lengths: "@de-en-newz"', "{lengths}@de-en-newz:... (did you mean @de-en-news?)"),
        (
            LENGTHS,
            "lengths: {table: office.csv}",
            "{here}/office.csv:1: not a length table: it does not begin... (write it with `simnmt corpus table`)",
        ),
        (
            LENGTHS,
            "lengths: {tsv: news.de, src_unit: word, tgt_unit: word}",
            "{here}/news.de:1: 1 column, not 2 (put one tab between source and...",
        ),
        (
            "source: news.de, target: news.en, src_unit: word, tgt_unit: word",
            "table: '@en-zh-docs'",
            "small.yaml:12:22: devices.gateway.profile: {here}/gateway.json: the profile counts tgt... (count the text by...",
        ),
        (
            "profile: cloud.json",
            "profile: missing.json",
            "{cloud}{here}/missing.json: cannot read the profile: No such file...",
        ),
        ("profile: cloud.json", 'profile: "@titan"', "{cloud}@titan: nothing..."),
        (
            "profile: cloud.json",
            "profile: {newz: cloud.json}",
            "small.yaml:13:11: devices.cloud.profile: ...",
        ),
        (
            "profile: cloud.json",
            "profile: small.yaml",
            "small.yaml:13:20: devices.cloud.profile: {here}/small.yaml: this is a scenario, no device profile (name a...",
        ),
        (
            "profile: cloud.json",
            "profile: {news: nowhere/cloud.json}",
            "small.yaml:13:27: devices.cloud.profile.news: {here}/nowhere/cloud.json: cannot read the profile: No such file...",
        ),
    ],
)
def test_a_scenario(folder: Path, refused: Callable[..., None], old: str, new: str, complaint: str) -> None:
    text = (folder / "small.yaml").read_text()
    assert text.count(old) == 1
    (folder / "small.yaml").write_text(text.replace(old, new))
    refused(complaint, "run", "small.yaml")


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("small.yaml", b"\x00\x01\x02", "small.yaml:1:1: ..."),
        ("small.yaml", b"name: caf\xe9\n", "small.yaml:1:10: ..."),
        ("small.yaml", b"", "small.yaml:1:1: ..."),
        ("small.yaml", b"- a\n- b\n", "small.yaml:1:1: expected keys and values, got a list..."),
        ("small.yaml", b"\tversion: 1\n", "small.yaml:1:1: ..."),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,50\n1,-3\n",
            "{here}/office.csv:3:3: rtt_ms is -3, but an RTT is positive... (leave the cell empty where a...",
        ),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,50\n1,0\n",
            "{here}/office.csv:3:3: rtt_ms is 0, but an RTT is positive and... (leave the cell empty where a...",
        ),
        ("office.csv", b"time_s,rtt_ms\n0,50\nnan,60\n", "{here}/office.csv:3:1: time_s is nan (give every row a finite time)"),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,50\n1,inf\n",
            "{here}/office.csv:3:3: rtt_ms is inf, but an RTT is positive... (leave the cell empty where a...",
        ),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,50\n2,60\n1,55\n",
            "{here}/office.csv:4:1: time 1 is earlier than the row before "
            "(sort the rows by time; `simnmt trace import` mends the file)",
        ),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,50\n0,60\n",
            "{here}/office.csv:3:1: time 0 appears twice (keep one row per time; `simnmt trace import` mends the file)",
        ),
        ("office.csv", b"time_s,rtt_ms\n", "{rtt}{here}/office.csv: no rows below the column names (give at least one sample)"),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,\n1,nan\n",
            "{rtt}{here}/office.csv: rtt_ms is empty in every row (give at least one sample)",
        ),
        ("office.csv", b"", "{rtt}{here}/office.csv: empty file (give column names and one row per sample)"),
        (
            "office.csv",
            b"0,50\n1,60\n",
            "{here}/office.csv:1:1: the first row holds numbers, not column names (name the columns above it, e.g. time_s)",
        ),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,50ms\n",
            "{here}/office.csv:2:3: rtt_ms is '50ms', not a number (write numbers with a decimal point)",
        ),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,50,7\n",
            "{here}/office.csv:2:1: 3 cells, but the first row names 2 columns (complete the row or remove it)",
        ),
        (
            "office.csv",
            b"time_s,rtt_ms\n0,5\xff\n",
            "{here}/office.csv:2:4: byte 0xff is not UTF-8 text (save the file as UTF-8 CSV)",
        ),
        ("news.de", b"a b\n", "{lengths}{here}/news.de: 1 lines, but {here}/news.en has 80 (give two files..."),
        (
            "news.de",
            b"a b\n" * 79 + b"caf\xe9\n",
            "{here}/news.de:80:4: byte 0xe9 is not UTF-8 (save the file as UTF-8, e.g. with...",
        ),
        ("news.de", b"", "{lengths}{here}/news.de: 0 lines, but {here}/news.en has 80 (give two files..."),
        (
            "news.de",
            b"a\n" * 79 + b"\x00\n",
            "{here}/news.de:80:1: NUL byte: binary data, not text (give a text file with one sentence a line)",
        ),
        ("news.de", b"\n" * 80, "{lengths}{here}/news.de: no pair is left,... (check..."),
        (
            "news.de",
            b"\x1f\x8b\x08\x00broken",
            "{lengths}{here}/news.de: broken gzip data:... (fetch or compress it again)",
        ),
        ("cloud.json", b"{", "{here}/cloud.json:1:2: no JSON: Expecting property name enclosed in double quotes..."),
        ("cloud.json", b"[]", "{cloud}{here}/cloud.json: a profile is a JSON object..."),
        (
            "cloud.json",
            b'{"schema_version": 9}',
            "{cloud}{here}/cloud.json: schema_version: 9 where this simnmt reads 1 (make... again...",
        ),
        (
            "cloud.json",
            b'{"schema_version": 1, "name": NaN}',
            "{cloud}{here}/cloud.json: NaN is not a finite number...",
        ),
        ("cloud.json", b"\xff", "{cloud}{here}/cloud.json: no UTF-8 text at byte 0 (a profile is a JSON file)"),
    ],
)
def test_a_file(folder: Path, refused: Callable[..., None], file: str, content: bytes, complaint: str) -> None:
    (folder / file).write_bytes(content)
    refused(complaint, "run", "small.yaml")


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (
            "valid_range",
            {"src_len": [1, 20], "tgt_len": [1, 300]},
            "{cloud}{here}/cloud.json: 50.0 % of workload news lies outside... (take...",
        ),
        (
            "valid_range",
            {"src_len": [9, 2], "tgt_len": [1, 300]},
            "{cloud}{here}/cloud.json: valid_range: src_len: [9, 2] is not a range within 0 and 1e9...",
        ),
        (
            "length_unit",
            {"src": "subword", "tgt": "word"},
            "{cloud}{here}/cloud.json: the profile counts src lengths by... (calibrate a model's folder, whose...",
        ),
        ("kind", "measured", "{cloud}{here}/cloud.json: kind: unknown key here (remove it)"),
    ],
)
def test_a_profile(folder: Path, refused: Callable[..., None], key: str, value: object, complaint: str) -> None:
    profile = json.loads((folder / "cloud.json").read_text())
    (folder / "cloud.json").write_text(json.dumps(profile | {key: value}))
    refused(complaint, "run", "small.yaml")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("run small.yaml --requests 0", "--requests 0: requests: must be >= 1, got 0"),
        ("run small.yaml --requests -1", "--requests -1: requests: must be >= 1, got -1"),
        ("run small.yaml --replications 0", "--replications 0: replications: must be >= 1, got 0"),
        ("run small.yaml --seed -1", "--seed -1: seed: must be >= 0, got -1"),
        ("run small.yaml --set seed", "--set seed: ..."),
        ("run small.yaml --set =1", "--set =1: ..."),
        (
            "run small.yaml --set seed=[",
            "--set seed=[: no YAML: ...",
        ),
        ("run small.yaml --set seed=x", "--set seed=x: seed: expected a whole number, got the text 'x'"),
        (
            "run small.yaml --set polices.cnmt.len_slope=1",
            "--set polices.cnmt.len_slope=1: polices: unknown key (did you mean policies?)",
        ),
        (
            "run small.yaml --set networks.office.rtt=nowhere.csv",
            "--set networks.office.rtt=nowhere.csv: networks.office.rtt: {here}/nowhere.csv:... (check the path)",
        ),
        ("run small.yaml --out office.csv", "office.csv: the output is no folder (give another output folder)"),
        (
            "run small.yaml --out office.csv/run",
            "office.csv/run: cannot write the run: Not a directory (give another output folder;...",
        ),
        ("run small.yaml --out .", ".: the output folder is not empty (give another output folder)"),
        ("run small.yaml --out full", "full: the output folder is not empty (give another output folder)"),
        ("run nowhere.yaml", "nowhere.yaml: no such file (`simnmt init` writes a scenario to begin with)"),
        ("run full", "full: no complete run directory: manifest.json is missing (give a folder that simnmt run wrote)"),
        ("run @nosuch", "@nosuch: nothing of that name is shipped under scenarios (known: @..."),
        ("run @", "@: nothing of that name is shipped under scenarios (known: @..."),
        ("init small.yaml", "small.yaml: exists already..."),
        ("init full", "full: exists already..."),
        ("init nowhere/new.yaml", "nowhere/new.yaml: cannot be written: No such file or directory"),
        ("init office.csv/new.yaml", "office.csv/new.yaml: cannot be written: Not a directory"),
        ("init new.yaml --template nosuch", "@nosuch: nothing of that name is shipped under scenarios (known: @..."),
        ("corpus fit news.de", "news.de:1: 1 column, not 2 (put one tab between source and..."),
        ("corpus fit news.de nowhere.en", "nowhere.en: no such file (check the path)"),
        ("corpus fit news.de office.csv", "news.de: 80 lines, but office.csv has 41 (give two files..."),
        ("corpus fit full news.en", "full: cannot be read: Is a directory (give a text file that you may read)"),
        ("corpus fit news.de news.en --unit words", "unknown unit 'words' (did you mean word?)"),
        ("corpus fit news.de news.en --filter nun", "unknown filter 'nun' (known: cnmt, none, ratio)"),
        (
            "corpus table news.de news.en --out nowhere/t.csv",
            "nowhere/t.csv: cannot be written: No such file or directory (name a file...",
        ),
    ],
)
def test_arguments(folder: Path, refused: Callable[..., None], arguments: str, complaint: str) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "precious.txt").write_text("precious")
    refused(complaint, *arguments.split())


def test_several_faults_are_a_line_each(folder: Path, simnmt: Callable[..., Any]) -> None:
    text = (folder / "small.yaml").read_text()
    (folder / "small.yaml").write_text(text.replace("seed: 3", "sed: 3").replace("requests: 200", "requests: many"))
    done = simnmt("run", "small.yaml", "--replications", "0")
    assert done.status == 2
    assert [line.partition(" (")[0] for line in done.err.splitlines()] == [
        "simnmt: small.yaml:3:1: sed: unknown key",
        "small.yaml:4:11: requests: expected a whole number, got the text 'many'",
        "--replications 0: replications: must be >= 1, got 0",
    ]


@pytest.mark.parametrize(
    ("arguments", "named", "command"),
    [
        ("rum small.yaml", "rum", "simnmt"),
        ("run", "SCENARIO", "simnmt run"),
        ("run small.yaml small.yaml", "small.yaml", "simnmt run"),
        ("run small.yaml --request 5", "--requests", "simnmt run"),
        ("run small.yaml --requests abc", "--requests", "simnmt run"),
        ("run small.yaml --jobs -1", "--jobs", "simnmt run"),
        ("schema now", "now", "simnmt schema"),
        ("corpus fat", "fat", "simnmt corpus"),
        ("corpus fit", "SRC", "simnmt corpus fit"),
    ],
)
def test_a_command_line_that_means_nothing(
    folder: Path, simnmt: Callable[..., Any], arguments: str, named: str, command: str
) -> None:
    done = simnmt(*arguments.split())
    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(rf"simnmt: .*{re.escape(named)}.* \(see {command} --help\)\n", done.err)


@pytest.mark.parametrize("arguments", [(), ("corpus",), ("reproduce",)])
def test_no_verb_brings_the_help(simnmt: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    done = simnmt(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"Usage: {' '.join(['simnmt', *arguments])} ")
