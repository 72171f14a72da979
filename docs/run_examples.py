"""Run the documentation's examples: `python docs/run_examples.py [FILE.md ...]`; without a file, those of all pages.

A fenced block `python` is executed; in a block `console`, each line that begins with `$ ` is run by a shell and what
follows must be what it prints, where `...` stands for any text, also over several lines. Blocks `sh`, `py` and `text` are for
reading alone. A block `yaml` is a scenario, or some keys of one that are put into `BASE`: it is checked and built as
`simnmt run` does before the first request, beside the `FILES` that the examples name. The blocks of a file share one
empty folder, its scenarios another, and its Python blocks one namespace. A block `yaml` whose first line is the comment
`# NAME.yaml` is a file of that name in the folder of the commands, where it is checked beside what these have written.
"""

from __future__ import annotations

import copy
import doctest
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(console|python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> Iterator[tuple[int, str, str, str]]:
    """(line, language, what is run, what it should print) of each example in a document."""
    for block in BLOCK.finditer(text):
        language, body = block.groups()
        line = text.count("\n", 0, block.start()) + 2
        if language != "console":
            yield line, language, body, ""
            continue
        for command in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
            yield line + body.count("\n", 0, command.start()), language, command.group(1), command.group(2)


NAMED_SCENARIO = re.compile(r"# ([\w-]+\.yaml)\n")

BASE: dict[str, Any] = {
    "version": 1,
    "name": "example",
    "workloads": {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 1.0}, "end_nodes": 40}},
    "networks": {"cp1": {"rtt": "@cp1"}},
    "devices": {"gateway": {"profile": "@tx2-bilstm"}, "cloud": {"profile": "@titan-xp-bilstm"}},
    "policies": {"edge": {}, "cloud": {}, "oracle": {}},
}
"""What a block that shows some keys of a scenario is put into; `arrivals` are those of its workload."""

RTT = "time_s,rtt_ms\n0,50\n60,60\n120,55\n"
BANDWIDTH = "time_s,downlink_mbps,uplink_mbps\n0,50,10\n60,60,12\n"
FILES = {
    "corpus.de": "ein kleines Haus\nnoch ein Satz\n" * 50,
    "corpus.en": "a little house\none more sentence\n" * 50,
    "office.csv": RTT,
    "mine.rtt.csv": RTT,
    "drive.rtt.csv": RTT,
    "probe.csv": "epoch_s,rtt_ms\n0,50\n60,60\n",
    "office-bandwidth.csv": BANDWIDTH,
    "mine.downlink.csv": "time_s,mbps\n0,50\n60,60\n",
    "drive.downlink.csv": "time_s,mbps\n0,50\n60,60\n",
    "grid.csv": "time,g_per_kwh\n2026-01-31T00:00Z,120\n2026-01-31T00:30Z,135\n2026-01-31T01:00Z,180\n",
    "rates.csv": "t_s,rate_rps\n0,2\n60,4\n120,3\n",
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:00:00,10,12\n2023-11-16 18:00:01,14,9\n2023-11-16 18:00:03,7,8\n",
}
"""What the examples read, by its name."""


def scenario_of(text: str, folder: Path) -> Path | dict[str, Any]:
    """Return the scenario of a `yaml` block as `simnmt.run` takes it: its file in `folder`, or `BASE` with the block's keys.

    The files that it names are written to `folder`, which must be the current one.
    """
    from ruamel.yaml import YAML

    from simnmt.base import shipped_files

    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "gateway.json").write_bytes(shipped_files.find("calibration", "@tx2-bilstm").read_bytes())
    keys = YAML(typ="safe", pure=True).load(text)
    if "version" in keys:
        (folder / "scenario.yaml").write_text(text, encoding="utf-8")
        return folder / "scenario.yaml"
    scenario = copy.deepcopy(BASE)
    for key in ("arrivals", "documents"):
        if key in keys:
            scenario["workloads"]["de-en"][key] = keys.pop(key)
    return scenario | keys


def check_scenario(text: str, folder: Path) -> None:
    """Check and build the scenario of a `yaml` block; raises `InputError` where `simnmt run` would refuse it."""
    from simnmt.experiment.inputs import read_inputs
    from simnmt.scenario.source import open_source

    source = open_source(scenario_of(text, folder))
    read_inputs(source.scenario, folder, source.document)


def check_named_scenario(text: str, name: str, folder: Path) -> None:
    """Write the scenario of a `yaml` block to `folder`, check it there and build it, as `simnmt run` does."""
    from simnmt.experiment.inputs import read_inputs
    from simnmt.scenario.source import open_source

    (folder / name).write_text(text, encoding="utf-8")
    source = open_source(folder / name)
    read_inputs(source.scenario, folder, source.document)


def run(path: Path, kept: Path | None = None) -> tuple[int, int]:
    """Run one document's examples, in an empty folder or in the existing folder `kept`; returns how many passed and failed."""
    passed = failed = 0
    begin_s = time.monotonic()
    namespace: dict[str, object] = {"__name__": "example"}
    here = Path.cwd()
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as scenarios:
        folder = empty if kept is None else str(kept)
        for line, language, source, expected in examples(path.read_text(encoding="utf-8")):
            fault = None
            if language != "console":
                named = NAMED_SCENARIO.match(source) if language == "yaml" else None
                os.chdir(scenarios if language == "yaml" and not named else folder)
                try:
                    if named:
                        check_named_scenario(source, named.group(1), Path(folder))
                    elif language == "yaml":
                        check_scenario(source, Path(scenarios))
                    else:
                        exec(compile(source, f"{path}:{line}", "exec"), namespace)
                except Exception:
                    fault = traceback.format_exc()
                finally:
                    os.chdir(here)
            else:
                done = subprocess.run(
                    source, shell=True, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
                same = not expected.strip() or doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS)
                if done.returncode != 0 or not same:
                    fault = f"exit status {done.returncode}, printed:\n{done.stdout}\nexpected:\n{expected}"
            if fault is None:
                passed += 1
            else:
                failed += 1
                print(f"{path}:{line}: {source.strip().splitlines()[0]}\n{fault}", file=sys.stderr)
    print(f"{path.name}: {passed} passed, {failed} failed, {time.monotonic() - begin_s:.1f} s", flush=True)
    return passed, failed


def main() -> None:
    """Run the documents named on the command line, or all; exit status 1 if an example fails or there is none.

    Each processor runs a document of its own.
    """
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        totals = list(pool.map(run, [Path(name) for name in sys.argv[1:]] or PAGES))
    passed, failed = (sum(column) for column in zip(*totals, strict=True))
    print(f"documentation: {passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
