"""Commands that are killed at any of their file operations: the next run sweeps what they left, and gives the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.harness import run_cases, thinned

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")

FILE_EVENTS = {
    "open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir", "os.chmod",
    "shutil.rmtree",
}  # fmt: skip
COMMANDS = {
    "run": "run small.yaml --requests 20 --replications 1 --out run",
    "run in reports": "run small.yaml --requests 20 --replications 1",
    "corpus table": "corpus table news.de news.en --out table.csv --force",
    "init": "init new.yaml",
    "trace import": "trace import office.csv --out imported.csv --force",
    "sweep": "sweep small.yaml --grid networks.office.rtt_mean_ms=20,90 --requests 20 --replications 2 --jobs 1 --out sweep",
}
TRAININGS = {
    "nmt train": "nmt train --src one.txt --tgt other.txt --model tiny.json --heldout 20 --batch-tokens 200 --steps 1 "
    "--threads 1 --out model",
    "sti train": "sti train --task films.tsv --layers 2 --slices 2 --width 8 --ffn 8 --vocab 30 --positions 8 --epochs 1 "
    "--threads 1 --out model",
}
"""The next run goes on with what they left."""
CHANGES = {"manifest.json", "report.html", "training.json", "state.safetensors"}
"""Files that hold the time of writing, or how long it took."""
FIRST_WRITE = 16
"""File operations, among which the first file of any of these commands is written."""


def run_until(command: Callable[[], Any], kill_at: int | None) -> tuple[int, int]:
    """Run a command in a forked process that kills itself at its file operation number `kill_at`.

    Returns the number of the signal that ended the process (0: none), and the operations that it did.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: the child takes no lock of theirs
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(120)
            operations = 0

            def count(event: str, _: object) -> None:
                nonlocal operations
                if event in FILE_EVENTS:
                    if operations == kill_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    operations += 1

            sys.addaudithook(count)
            command()
            os.write(writer, str(operations).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        operations_done = pipe.read()
    return os.WTERMSIG(os.waitpid(child, 0)[1]), int(operations_done or 0)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files; a folder named after the time is called by its name's beginning."""
    return {
        str(path.relative_to(folder)).partition("-20")[0] + path.name: path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in CHANGES
    }


@pytest.fixture
def training_inputs(folder: Path) -> Path:
    """Texts and an architecture for the trainings."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("with a GPU autograd has threads, which do not outlive a fork")
    from tests.nmt import toy_language

    toy_language.write(folder, 120)
    (folder / "tiny.json").write_text(toy_language.GRU.model_dump_json())
    rows = [f"a {word} {thing}\t{label}" for word, label in (("good", 1), ("bad", 0)) for thing in ("film", "book", "day")]
    (folder / "films.tsv").write_text("sentence\tlabel\n" + "\n".join(rows * 4) + "\n")
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_the_leftovers_of_a_killed_command_do_not_disturb_the_next(folder: Path, simnmt: Callable[..., Any], name: str) -> None:
    check_kills(folder, simnmt, name, COMMANDS[name], cases=10 if name == "sweep" else 4)


@pytest.mark.deep
def test_a_sweep_on_several_processes_killed_at_any_time_goes_on_to_the_same_table(
    folder: Path, start: Callable[..., Any], process: Callable[..., Any]
) -> None:
    command = "sweep small.yaml --grid networks.office.rtt_mean_ms=20:200:10 --requests 2000 --replications 3 --jobs 2 --out"
    began_s = time.monotonic()
    assert process(*command.split(), "whole").status == 0
    took_s = time.monotonic() - began_s

    def check(generator: random.Random) -> None:
        shutil.rmtree(folder / "parts", ignore_errors=True)
        killed = start(*command.split(), "parts")
        time.sleep(took_s * generator.random())
        with suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        assert process(*command.split(), "parts").status == 0
        assert (folder / "parts" / "sweep.parquet").read_bytes() == (folder / "whole" / "sweep.parquet").read_bytes()

    run_cases("kill a sweep on processes", 2, check)


@pytest.mark.parametrize("name", thinned(TRAININGS, ["sti train"]))
def test_a_killed_training_is_taken_up_by_the_next(training_inputs: Path, simnmt: Callable[..., Any], name: str) -> None:
    check_kills(training_inputs, simnmt, name, TRAININGS[name])


def check_kills(folder: Path, simnmt: Callable[..., Any], name: str, arguments: str, cases: int = 4) -> None:
    def command() -> Any:
        return simnmt(*arguments.split())

    shutil.copytree(folder, folder.parent / "fresh")

    def afresh() -> None:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(folder.parent / "fresh", folder, dirs_exist_ok=True)

    first = command()  # imports are done before the forks
    assert first.status == 0, first.err
    whole = contents(folder)
    afresh()
    ended, operations = run_until(command, None)
    assert (ended, operations > 3, contents(folder)) == (0, True, whole)

    def check(generator: random.Random) -> None:
        afresh()
        among = operations if generator.random() < 0.5 else min(operations, FIRST_WRITE)
        kill_at = generator.randrange(among)
        ended, operations_done = run_until(command, kill_at)
        if ended == 0 and operations_done <= kill_at:  # a training saves by the clock: now less often
            afresh()
            ended, _ = run_until(command, kill_at // 2)
        assert ended == signal.SIGKILL
        left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        for name, content in contents(folder).items():
            assert ".simnmt-partial" in name or content == whole[name], (name, left)  # there whole or not at all
        for path in (folder / "run", folder / "reports", folder / "new.yaml"):
            if path.is_file():
                path.unlink()
            elif list(path.rglob("manifest.json")):  # complete, so that no other run may touch it
                shutil.rmtree(path)
        done = command()
        assert (done.status, done.err) == (0, first.err), (done, left)
        for path in list(folder.rglob(".simnmt-partial-*")):  # of the killed process; they disturb nothing
            shutil.rmtree(path)
        assert contents(folder) == whole, (left, sorted(contents(folder)))

    run_cases(f"kill {name}", cases, check)
