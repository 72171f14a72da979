"""How a command starts, and what it says on which stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt as package
from simnmt.base import shipped_files
from simnmt.profile.device_profile import read_profile
from tests.campaigns.harness import deep
from tests.command_line import ROOT, Command


def imported(arguments: list[str], folder: Path) -> set[str]:
    """Top-level modules that a command has imported when it ends."""
    code = """if True:
        import sys
        from simnmt.cli import main
        try:
            main()
        except SystemExit as leaving:
            assert not leaving.code, leaving.code
        print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
    """
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments", [["run", "--help"], deep(["--help"]), deep(["corpus", "fit", "-h"]), deep(["--version"])], ids=" ".join
)
def test_help_waits_for_no_library(tmp_path: Path, arguments: list[str]) -> None:
    modules = imported(arguments, tmp_path)
    assert "typer" in modules
    assert not modules & {"numpy", "pandas", "simpy", "plotly", "scipy", "pyarrow", "torch"}


@pytest.mark.deep
def test_the_shell_completes_verbs_and_options_without_a_library(tmp_path: Path) -> None:
    for words, expected in (("simnmt calib", "calibrate"), ("simnmt sti plan --prel", "--preload")):
        completion = {"_SIMNMT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        run = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "from simnmt.cli import main; main()"],
            env=os.environ | {"PYTHONPATH": str(ROOT)} | completion,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert expected in run.stdout.split()
        assert "numpy" not in run.stderr and "torch" not in run.stderr


def test_a_run_imports_neither_torch_nor_pandas_and_its_json_stands_alone_on_standard_output(
    folder: Path, process: Command
) -> None:
    """In any of its processes, and in any encoding.

    Modules that leave a trace stand in for the real ones: torch need not be installed, pandas takes a third of a second. The
    whole of a run: its directory, page and JSON.
    """
    (folder / "decoy").mkdir()
    for name in ("torch", "transformers", "ciw", "pandas"):
        (folder / "decoy" / f"{name}.py").write_text(f"open({str(folder / 'trace')!r}, 'w')\n")
    paths = os.pathsep.join([str(folder / "decoy"), str(ROOT)])
    env = {"PYTHONPATH": paths, "PYTHONIOENCODING": "ascii"}
    done = process("run", "small.yaml", "--set", "name=größe", "--json", "--jobs", "2", env=env)
    assert (done.status, done.err) == (0, "")
    summary = json.loads(done.out)
    directory = Path(summary.pop("directory"))
    assert directory.parent == Path("reports")
    assert (folder / directory / "report.html").exists()
    assert summary == json.loads((folder / directory / "summary.json").read_text(encoding="utf-8"))
    assert summary["name"] == "größe"
    assert [row["policy"] for row in summary["rows"]] == ["edge", "cloud", "oracle", "naive", "cnmt"]
    assert not (folder / "trace").exists()


def test_version(simnmt: Command) -> None:
    assert simnmt("--version").out == f"simnmt {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["schema"],
        deep(["--version"]),
        deep(["run", "small.yaml", "--jobs", "1"]),
    ],
    ids=" ".join,
)
def test_a_reader_that_has_enough_is_no_failure(folder: Path, start: Callable[..., Any], arguments: list[str]) -> None:
    """The schema is longer than what a buffer keeps back; a version and a table are not."""
    process = start(*arguments)
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize(
    ("stream", "command", "made"),
    [
        (2, "corpus table news.de news.en --out made.csv", "made.csv"),
        (1, "run small.yaml --jobs 1 --out run", "run/manifest.json"),
        (2, "run small.yaml --jobs 2 --out run", "run/manifest.json"),
    ],
)
@pytest.mark.deep
def test_a_stream_that_was_never_open(folder: Path, process: Command, stream: int, command: str, made: str) -> None:
    done = process(*command.split(), preexec_fn=lambda: os.close(stream))
    assert done.status == 0
    assert done.err == ""
    assert Path(made).exists()


def test_a_fault_of_ours_keeps_its_traceback_and_no_memory_is_one_line(
    folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[type[BaseException]] = [MemoryError, ZeroDivisionError]

    def broken(*_: Any, **__: Any) -> None:
        raise raised.pop(0)

    monkeypatch.setattr("simnmt.api.run_plan", broken)
    done = simnmt("run", "small.yaml")
    assert (done.status, done.out, done.err) == (1, "", "simnmt: out of memory (run fewer --requests or --jobs)\n")
    with pytest.raises(ZeroDivisionError):
        simnmt("run", "small.yaml")
    assert not Path("reports").exists()


def example(simnmt: Command, *verb: str) -> list[str]:
    """Return the words of the example in a verb's help, which may be wrapped."""
    paragraph = simnmt(*verb, "--help").out.partition("Example: simnmt ")[2].partition("\n\n")[0]
    return [str(word) for word in paragraph.split()]


def test_the_examples_of_the_help_run(folder: Path, simnmt: Command) -> None:
    assert simnmt(*example(simnmt, "run"), "--requests", "40", "--out", "out").status == 0
    *_, profile = example(simnmt, "reproduce", "topup")
    assert read_profile(shipped_files.find("calibration", profile)).step is not None, "top-up needs costs of decode steps"


def test_the_examples_of_live_verbs_name_a_scenario_whose_engine_can_be_started(
    simnmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they named one of inferred profiles, which hold no engine."""
    served: list[object] = []
    monkeypatch.setattr("simnmt.cli.live.serve", lambda make, as_json: served.append(make))
    gateway, replay = example(simnmt, "live", "gateway"), example(simnmt, "live", "replay")
    assert simnmt(*gateway).status == 0 and len(served) == 1
    assert replay[2] == gateway[2] and "--forced-lengths" in gateway, "the replay sends lengths"


PING = """\
PING office (192.0.2.9) 56(84) bytes of data.
[1700000000.1] 64 bytes from 192.0.2.9: icmp_seq=1 ttl=55 time=11.2 ms
[1700000001.1] 64 bytes from 192.0.2.9: icmp_seq=2 ttl=55 time=12.2 ms
[1700000003.1] 64 bytes from 192.0.2.9: icmp_seq=4 ttl=55 time=11.9 ms
"""
SCENARIO = ROOT / "scenarios" / "quickstart.yaml"


@pytest.fixture
def wrong_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.py").write_text('"""A policy."""\nclass Mine:\n    def prepare(self, src_len): ...\n')
    Path("notes.md").write_text("# Notes\n\nWhat follows: a list: of things\n  - one\n")
    Path("ping.log").write_text(PING)
    Path("manual.fr").write_text("Le manuel est ici.\nVoici une phrase; avec une autre.\n")
    Path("scenario.yaml").write_bytes(SCENARIO.read_bytes())


WRONG = {
    "Python as a scenario": ("run policy.py", "policy.py:1:"),
    "a text as a scenario": ("run notes.md", "notes.md:3:"),
    "a ping log as a series": ("run scenario.yaml --set networks.cp1.rtt=ping.log", "simnmt trace import ping.log --out"),
    "a text as a ping log": ("trace import manual.fr --out x.csv", "manual.fr: no reader knows"),
    "a scenario as a profile": (
        "run scenario.yaml --set devices.cloud.profile=scenario.yaml",
        "scenario.yaml: this is a scenario",
    ),
    "a log without times": ("trace import log.csv --out x.csv", "--column time=NAME"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.usefixtures("wrong_files")
def test_a_file_of_another_kind_is_one_line_that_says_what_it_is(simnmt: Command, case: str) -> None:
    Path("log.csv").write_text("when,how\n1,20\n2,30\n")
    arguments, part = WRONG[case]
    done = simnmt(*arguments.split())
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert part in done.err, done.err


@pytest.mark.usefixtures("wrong_files")
def test_an_import_and_a_run_count_lost_samples(simnmt: Command) -> None:
    assert "lost samples: 1" in simnmt("trace", "import", "ping.log", "--out", "office.csv").out
    networks = "networks={office: {rtt: office.csv}}"
    run = simnmt("run", "scenario.yaml", "--requests", "300", "--replications", "1", "--json", "--set", networks)
    assert "lost samples: 1" in run.out
