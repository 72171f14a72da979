"""The script that measures a GPU: its steps, their limits, and what is left to the next call."""

from __future__ import annotations

import importlib
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.all_cuda import LEAST_S, Results, Step, StepResult, main, run, run_all, steps_on_cpu, steps_on_gpu
from simnmt.base.errors import InputError, SimnmtError
from simnmt.nmt.errors import NmtError
from tests.command_line import Outcome, simnmt
from tests.optional_packages import skip_file_without

skip_file_without("torch", "models")

__all__ = ["simnmt"]
"""The fixture that runs a command within this process."""

BOX = {"device": "a GPU"}


def python(name: str, program: str, limit_s: float = 30.0) -> Step:
    return Step(name, (sys.executable, "-c", program), limit_s)


def writer(alive: Path) -> str:
    """A program that writes to a file until it is killed."""
    return f"import time\nwhile True:\n    open({str(alive)!r}, 'a').write('x'); time.sleep(0.02)"


def parent(alive: Path, then: str) -> str:
    """A program that starts a writer and, once that writes, does something else."""
    wait = f"while not os.path.exists({str(alive)!r}): time.sleep(0.01)"
    return f"import os, subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {writer(alive)!r}])\n{wait}\n{then}"


@contextmanager
def nothing_writes_after(alive: Path) -> Iterator[None]:
    yield
    size = alive.stat().st_size
    time.sleep(0.2)
    assert size > 0 and alive.stat().st_size == size


def test_steps_that_fail_or_take_too_long_are_noted_and_repeated_and_the_others_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = tmp_path / "count"
    well = python("well", f"open({str(count)!r}, 'a').write('x'); print('[1]')")
    failing = python("a, failing", "import sys; print('no such card', file=sys.stderr); sys.exit(3)")
    steps = [failing, python("slow", "import time; time.sleep(60)", 0.5), well]
    results = Results(tmp_path, BOX)
    run_all(steps, tmp_path, 1.0, results, archive=tmp_path / "all.tar.gz")
    assert [result.status for result in results.of.values()] == [3, None, 0]
    assert (tmp_path / "well.out").read_text() == "[1]\n"
    printed = capsys.readouterr().out
    assert f"a, failing: failed with status 3: no such card ({tmp_path / 'a-failing.err'})" in printed
    assert "slow: stopped after 0." in printed and "its limit" in printed
    with tarfile.open(tmp_path / "all.tar.gz") as packed:
        assert {"well.out", "a-failing.err", "steps.json"} <= set(packed.getnames()) and "all.tar.gz" not in packed.getnames()
    again = Results(tmp_path, BOX)
    run_all([python("a, failing", "pass"), *steps[1:]], tmp_path, 1.0, again)
    assert [result.succeeded for result in again.of.values()] == [True, False, True]
    assert count.read_text() == "x" and "well: done before" in capsys.readouterr().out
    assert Results(tmp_path, BOX).of == again.of
    run_all([python("well", "pass")], tmp_path, 1.0, again)  # another command of the same name
    assert again.of["well"].command[-1] == "pass"


def test_results_of_another_box_are_not_gone_on_with(tmp_path: Path) -> None:
    Results(tmp_path, BOX).add(python("one", "pass"), StepResult(("one",), 0, 1.0, None))
    with pytest.raises(InputError, match=r"results of device a GPU, and this is device another GPU \(choose another --out\)"):
        Results(tmp_path, {"device": "another GPU"})


def test_children_die_with_a_step_that_takes_too_long_or_fails(tmp_path: Path) -> None:
    for name, then, status in (("slow", "time.sleep(60)", None), ("failing", "sys.exit(3)", 3)):
        alive = tmp_path / name
        with nothing_writes_after(alive):
            assert run(python(name, parent(alive, then), 3.0), tmp_path, 3.0, lambda: None).status == status


def test_a_signal_ends_the_step_at_work(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise SystemExit(143)

    alive, before = tmp_path / "alive", signal.signal(signal.SIGALRM, stop)
    try:
        with nothing_writes_after(alive), pytest.raises(SystemExit):
            signal.setitimer(signal.ITIMER_REAL, 2.0)
            run(python("writer", writer(alive)), tmp_path, 30.0, lambda: None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_no_step_begins_when_the_time_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(tmp_path, BOX)
    run_all([python("late", "pass")], tmp_path, (LEAST_S - 1.0) / 60.0, results)
    assert results.of == {} and capsys.readouterr().out == "late: no time left\n"


def test_the_joules_of_each_step_are_those_between_two_readings(tmp_path: Path) -> None:
    readings = iter([10.0, 12.5, 20.0, None])
    results = Results(tmp_path, BOX)
    run_all([python("one", "pass"), python("two", "pass")], tmp_path, 1.0, results, lambda: next(readings))
    assert [result.joules for result in results.of.values()] == [2.5, None]


def test_every_command_for_a_gpu_gets_as_far_as_the_gpu_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, simnmt: Callable[..., Outcome]
) -> None:
    """So that no option is misspelt when a GPU is there at last, and each file that is read is one that a step before wrote."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    task = tmp_path / "task.tsv"
    task.write_text("sentence\tlabel\n" + "".join(f"a text of number {row}\t{row % 2}\n" for row in range(20)))
    missing = ("sees no", "no such file", "No such file", "no such model", "no shard store")
    written: set[str] = {str(task)}
    for step in steps_on_gpu(tmp_path, task):
        program, arguments = step.command[2], list(step.command[3:])
        outputs = {value for option, value in pairwise(arguments) if option in ("--out", "--study")}
        assert {value for value in arguments if value.startswith(str(tmp_path))} <= written | outputs
        written |= outputs
        if step.name == "doctor" or (step.name.startswith("kernels") and find_spec("triton") is None):
            continue
        if program.startswith("from"):
            message = simnmt(*arguments).err
        else:
            with pytest.raises((SystemExit, SimnmtError)) as stopped:
                importlib.import_module(program).main(arguments)
            message = capsys.readouterr().err + str(stopped.value)
        assert any(fault in message for fault in missing), (step.name, message)


def test_the_trial_without_a_gpu_takes_the_same_verbs_and_benchmarks(tmp_path: Path) -> None:
    def kinds(steps: Iterator[Step]) -> set[str]:
        return {step.name.split(",")[0].split(" ")[0] for step in steps}

    task = tmp_path / "task.tsv"
    assert kinds(steps_on_gpu(tmp_path, task)) == kinds(steps_on_cpu(tmp_path, task))


def test_without_a_gpu_it_says_so_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(NmtError, match="torch sees no cuda:0 here"):
        main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_task_that_is_missing_is_named_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "out"), "--task", str(tmp_path / "none.tsv")])
    assert "no such file" in capsys.readouterr().err and not (tmp_path / "out").exists()
