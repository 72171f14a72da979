"""`--quiet` and `--verbose`: what standard error shows beside warnings and errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PRECISE = ("run", "small.yaml", "--until-precision", "90%")


@pytest.mark.parametrize("arguments", [("-q", *PRECISE), (*PRECISE, "-q"), ("run", "--quiet", *PRECISE[1:])])
def test_a_quiet_command_prints_no_notes_before_or_behind_the_verb(
    folder: Path, simnmt: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    assert simnmt(*PRECISE).err.startswith("5 replications suffice ")
    done = simnmt(*arguments)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("small: 200 requests each"), "the result is no note"


def test_a_quiet_command_warns_and_complains(folder: Path, simnmt: Callable[..., Any]) -> None:
    profile = json.loads(Path("gateway.json").read_text())
    fit = profile["execution"]["fit"] | {"heldout_error": 0.3}
    profile |= {"execution": profile["execution"] | {"kind": "measured", "fit": fit}}
    Path("gateway.json").write_text(json.dumps(profile))
    assert simnmt("run", "small.yaml", "-q").err.startswith("simnmt: warning: ")
    done = simnmt("-q", "run", "none.yaml")
    assert (done.status, done.err.startswith("simnmt: none.yaml: no such file")) == (2, True)


def test_a_verbose_command_prints_the_librarys_log_on_standard_error(folder: Path, simnmt: Callable[..., Any]) -> None:
    done = simnmt("run", "small.yaml", "--json", "-v")
    lines = done.err.splitlines()
    assert {line.split(": ")[1] for line in lines} == {"info"}
    assert "simnmt: info: experiment: policy cnmt: the world ran in engine " in done.err
    assert json.loads(done.out)["name"] == "small"
    assert simnmt("run", "small.yaml").err == "", "the next command is not verbose"


def test_a_command_is_not_both(folder: Path, simnmt: Callable[..., Any]) -> None:
    for arguments in (("-q", "run", "small.yaml", "-v"), ("run", "small.yaml", "-q", "-v")):
        done = simnmt(*arguments)
        assert (done.status, "choose one of --quiet and --verbose" in done.err) == (2, True)


def test_the_value_of_an_option_is_no_option(folder: Path, simnmt: Callable[..., Any]) -> None:
    assert simnmt("init", "new.yaml", "--template", "-q").err.startswith("simnmt: @-q: ")


def test_the_library_leaves_its_log_to_the_program(caplog: pytest.LogCaptureFixture, folder: Path) -> None:
    import simnmt

    log = logging.getLogger("simnmt")
    assert [type(handler) for handler in log.handlers] == [logging.NullHandler] and log.level == logging.NOTSET
    with caplog.at_level(logging.INFO, logger="simnmt"):
        simnmt.run("small.yaml")
    rooms = {record.name for record in caplog.records}
    assert {"simnmt.profile", "simnmt.experiment"} <= rooms
