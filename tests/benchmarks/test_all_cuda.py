"""The script that measures a GPU: its steps, their limits, and what is left to the next call."""

from __future__ import annotations

import importlib
import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.all_cuda import LEAST_S, Ended, Step, main, run_all, steps_on_cpu, steps_on_gpu
from simnmt.base.errors import SimnmtError
from simnmt.calibrate.energy_meter import EnergyMeter
from simnmt.cli import main as simnmt
from simnmt.nmt.errors import NmtError
from tests.optional_packages import skip_file_without

skip_file_without("torch", "models")


def python(name: str, program: str, limit_s: float = 30.0) -> Step:
    return Step(name, (sys.executable, "-c", program), limit_s)


def test_steps_that_fail_or_take_too_long_are_noted_and_repeated_and_the_others_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = tmp_path / "count"
    well = python("well", f"open({str(count)!r}, 'a').write('x'); print('[1]')")
    steps = [python("a, failing", "raise SystemExit(3)"), python("slow", "import time; time.sleep(60)", 0.5), well]
    ended = run_all(steps, tmp_path, 1.0)
    assert [each.status for each in ended.values()] == [3, None, 0]
    assert (tmp_path / "well.out").read_text() == "[1]\n"
    assert (tmp_path / "a-failing.err").read_text() == ""
    printed = capsys.readouterr().out
    assert "a, failing: failed with status 3" in printed and "slow: killed at its limit" in printed
    again = run_all([python("a, failing", "pass"), *steps[1:]], tmp_path, 1.0)
    assert [each.well for each in again.values()] == [True, False, True]
    assert count.read_text() == "x" and "well: done before" in capsys.readouterr().out
    noted = json.loads((tmp_path / "steps.json").read_text())
    assert {name: Ended(**note | {"command": tuple(note["command"])}) for name, note in noted.items()} == again
    run_all([python("well", "pass")], tmp_path, 1.0)  # another command of the same name
    assert json.loads((tmp_path / "steps.json").read_text())["well"]["command"][-1] == "pass"


def test_children_die_with_a_step_that_takes_too_long(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    child = f"import time\nwhile True: open({str(alive)!r}, 'a').write('x'); time.sleep(0.02)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    run_all([python("parent", parent, 1.5)], tmp_path, 1.0)
    size = alive.stat().st_size
    time.sleep(0.2)
    assert size > 0 and alive.stat().st_size == size


def test_no_step_begins_when_the_time_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_all([python("late", "pass")], tmp_path, (LEAST_S - 1.0) / 60.0) == {}
    assert capsys.readouterr().out == "late: no time left\n"


def test_every_command_for_a_gpu_gets_as_far_as_the_gpu_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no option is misspelt when a GPU is there at last."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    task = tmp_path / "task.tsv"
    task.write_text("sentence\tlabel\n" + "".join(f"a text of number {row}\t{row % 2}\n" for row in range(20)))
    lacking = ("sees no", "no such file", "No such file", "no such model", "no shard store")
    for step in steps_on_gpu(tmp_path, task):
        program, arguments = step.command[2], list(step.command[3:])
        if step.name == "doctor" or (step.name.startswith("kernels") and find_spec("triton") is None):
            continue
        run = simnmt if program.startswith("from") else importlib.import_module(program).main
        monkeypatch.setattr("sys.argv", ["simnmt", *arguments])
        with pytest.raises((SystemExit, SimnmtError)) as stopped:
            run() if run is simnmt else run(arguments)
        said = capsys.readouterr().err + str(stopped.value)
        assert any(lack in said for lack in lacking), (step.name, said)


def test_the_trial_without_a_gpu_takes_the_same_verbs_and_benchmarks(tmp_path: Path) -> None:
    def kinds(steps: list[Step]) -> set[str]:
        return {step.name.split(",")[0].split(" ")[0] for step in steps}

    task = tmp_path / "task.tsv"
    assert kinds(list(steps_on_gpu(tmp_path, task))) == kinds(list(steps_on_cpu(tmp_path, task)))


def test_the_joules_of_each_step_are_those_between_two_readings(tmp_path: Path) -> None:
    readings = iter([10.0, 12.5, 20.0, None])
    meter = cast(EnergyMeter, SimpleNamespace(read_j=lambda: next(readings)))
    ended = run_all([python("one", "pass"), python("two", "pass")], tmp_path, 1.0, meter)
    assert [each.joules for each in ended.values()] == [2.5, None]


def test_without_a_gpu_it_says_so_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(NmtError, match="torch sees no cuda:0 here"):
        main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_task_that_is_missing_is_named_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "out"), "--task", str(tmp_path / "none.tsv")])
    assert "no such file" in capsys.readouterr().err and not (tmp_path / "out").exists()
