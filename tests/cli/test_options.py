"""Values of options: times, sizes and rates with units, dates, lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from simnmt.cli.options import parse_bytes, parse_duration, parse_integers, parse_rate, parse_seconds, parse_share

READERS = (parse_seconds, parse_bytes, parse_rate, parse_duration, parse_share, parse_integers)


@pytest.mark.parametrize(
    ("text", "length_s"),
    [("600", 600), ("600s", 600), ("10m", 600), ("10 min", 600), ("2h", 7200), ("1d", 86_400), ("500ms", 0.5), ("0", 0)],
)
def test_lengths_of_time(text: str, length_s: float) -> None:
    assert parse_seconds(text) == length_s


@pytest.mark.parametrize(("text", "size"), [("256kB", 256_000), ("1MB", 1_000_000), ("2 GB", 2e9), ("64KiB", 65_536), ("0", 0)])
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(("text", "bytes_per_s"), [("200MB/s", 2e8), ("1.5 GB/s", 1.5e9), ("2000kB/s", 2e6)])
def test_rates(text: str, bytes_per_s: float) -> None:
    assert parse_rate(text) == bytes_per_s


def test_durations_shares_and_lists() -> None:
    assert parse_duration("2.5ms") == 0.0025
    assert parse_share("2%") == 0.02
    assert parse_integers("2,6,32") == (2, 6, 32)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nan",
        "200",
        "0x2",
    ],
)
def test_an_unknown_form_is_refused_with_the_forms_that_are_known(text: str) -> None:
    valid = {parse_seconds: {"200", "2"}, parse_integers: {"200", "2"}}
    for read in READERS:
        if text not in valid.get(read, ()):
            with pytest.raises(typer.BadParameter, match=r"write|give") as refused:
                read(text)
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize("verb", ["run", "trace import", "corpus fit", "profile compare", "sti shard"])
def test_help_names_arguments_without_their_types_and_the_options_on_messages(simnmt: Callable[..., Any], verb: str) -> None:
    text = simnmt(*verb.split(), "--help").out
    assert not re.search(r"<(?:str|path|list\[\w+\])>", text)
    assert "-q, --quiet" in text and "-v, --verbose" in text


@pytest.mark.parametrize("arguments", ["calibrate --out b.json --backend onnx", "run small.yaml --engine onnx"])
def test_a_value_that_is_no_choice_is_refused_without_the_words_of_a_library(
    folder: Path, simnmt: Callable[..., Any], arguments: str
) -> None:
    done = simnmt(*arguments.split())
    assert done.status == 2 and ": 'onnx' is not one of '" in done.err and "Value error" not in done.err
