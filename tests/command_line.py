"""Commands run within this process or as processes, on a small scenario with files of its own; what a refused one prints."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simnmt.cli import app
from simnmt.profile.device_profile import write_profile
from simnmt.world.structures import library

MOST_CHARACTERS = 300
"""Of one complaint."""


def assert_short_lines(err: str) -> None:
    """Assert that standard error holds printable lines of at most 300 characters and no traceback; it may hold none."""
    assert err.endswith("\n") or not err, err
    for line in err.removesuffix("\n").split("\n"):
        assert line.isprintable(), repr(line)
        assert len(line) <= MOST_CHARACTERS, (len(line), line)
    assert "Traceback" not in err and "Warning" not in err, err


def assert_complaint(err: str) -> None:
    """Assert that standard error holds complaints and nothing else: printable lines of at most 300 characters."""
    assert err.startswith(("simnmt: ", "Usage: ")), err
    assert_short_lines(err)


def assert_one_line(err: str) -> None:
    """Assert that standard error holds one complaint and nothing else."""
    assert_complaint(err)
    assert err.count("\n") == 1, err


SCENARIO = """\
version: 1
name: small
seed: 3
requests: 200
replications: 2
workloads:
  news:
    lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}
networks:
  office: {rtt: office.csv}
devices:
  gateway: {profile: gateway.json}
  cloud: {profile: cloud.json}
fit: {inferences: 100}
policies: {edge: {}, cloud: {}, oracle: {}, naive: {}, cnmt: {}}
"""

ROOT = Path(__file__).parents[1]
SCRIPT = Path(sys.executable).with_name("simnmt")
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-c", "from simnmt.cli import main; main()"]
"""The installed command where there is one; what it does where the checkout alone is on the path."""


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    def __post_init__(self) -> None:
        if self.status == 2:
            assert_short_lines(self.err)


def outcome(status: int, out: str, err: str) -> Outcome:
    """Return an outcome; where nothing was compiled, without the lines that say so, so that tests hold without a compiler."""
    lines = err.splitlines(keepends=True) if library() is None else []
    uncompiled = "simnmt: warning: the native library of ", "simnmt: note: the reference ran, "
    return Outcome(status, out, "".join(line for line in lines if not line.startswith(uncompiled)) if lines else err)


Command = Callable[..., Outcome]
"""A fixture that runs commands."""
Tree = Callable[[Path], dict[str, str]]
"""The fixture `tree`."""


@pytest.fixture
def folder(make_profile: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: small.yaml and the files that it names."""
    with filled_folder(make_profile) as place:
        monkeypatch.chdir(place)
        yield place
        monkeypatch.undo()


@contextmanager
def filled_folder(make_profile: Callable[..., Any]) -> Iterator[Path]:
    """A folder with small.yaml and its files until the block ends; its path is short: messages shorten long ones."""
    with tempfile.TemporaryDirectory(prefix="simnmt-") as parent:
        place = Path(os.path.realpath(parent)) / "here"
        place.mkdir()
        (place / "small.yaml").write_text(SCENARIO)
        source = [1 + 7 * line % 40 for line in range(80)]
        target = [1 + length * (9 + line % 3) // 10 for line, length in enumerate(source)]
        for name, lengths in (("news.de", source), ("news.en", target)):
            (place / name).write_text("".join("w " * length + "\n" for length in lengths))
        (place / "office.csv").write_text("time_s,rtt_ms\n" + "".join(f"{5 * k},{70 + 4 * (k % 7)}\n" for k in range(40)))
        write_profile(place / "gateway.json", make_profile((0.001, 0.008, 0.010), name="gateway"))
        write_profile(place / "cloud.json", make_profile((0.0002, 0.002, 0.005), name="cloud"))
        yield place


@pytest.fixture
def simnmt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command within this process; `run` on one process unless told otherwise."""

    def run(*arguments: str) -> Outcome:
        one_job = ("--jobs", "1") if arguments[:1] == ("run",) and len(arguments) > 1 and "--jobs" not in arguments else ()
        monkeypatch.setattr(sys, "argv", ["simnmt", *arguments[:1], *one_job, *arguments[1:]])
        capsys.readouterr()
        status = app._status()
        return outcome(status, *capsys.readouterr())

    return run


def environment(**variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return inherited | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error,ignore:the native library of the"} | variables


@pytest.fixture
def process() -> Callable[..., Outcome]:
    """Runs a command as a process of its own."""

    def run(*arguments: str, env: dict[str, str] | None = None, **options: Any) -> Outcome:
        options = {"capture_output": True, "stdin": subprocess.DEVNULL} | options
        done = subprocess.run(
            [*COMMAND, *arguments], text=True, timeout=60, env=environment(**(env or {})), check=False, **options
        )
        return outcome(done.returncode, done.stdout or "", done.stderr or "")

    return run


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Starts a command in a process group of its own.

    With Python's usual warnings: an interrupt amid an import may leave a file open, which nobody would be told.
    """

    def run(*arguments: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        variables = environment(PYTHONWARNINGS="ignore:the native library of the", **(env or {}))
        # A suite under nohup or in a script's background ignores these, and so would all that it starts, rightly.
        inherited = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)}
        try:
            return subprocess.Popen([*COMMAND, *arguments], text=True, env=variables, start_new_session=True, **options)
        finally:
            for number, handler in inherited.items():
                signal.signal(number, handler)

    return run


@pytest.fixture
def tree() -> Callable[[Path], dict[str, str]]:
    """Every file of a folder by its path, with its digest."""
    return lambda folder: {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }
