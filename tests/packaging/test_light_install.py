"""The light installation of a small box: `doctor` and `live gateway` without pandas, scipy and models.

Each test runs with these packages blocked; with SIMNMT_DIST also in an environment that holds the light installation alone.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.packages import LEFT_OUT
from tests.live.sleeping_service import sleeping
from tests.packaging.test_wheels import Installation, needs_wheels, wheel

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements" / "gateway.txt"
MOST_BYTES = 150_000_000
MODELS = {"torch", "transformers", "tokenizers", "sentencepiece", "sacrebleu", "sklearn", "ctranslate2", "httpx"}
BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(LEFT_OUT | MODELS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])

sys.meta_path.insert(0, Blocked())
from simnmt.cli import main
main()
"""


@dataclass(frozen=True)
class Light:
    """How `simnmt` is started."""

    command: Sequence[str | Path]
    environment: dict[str, str]
    folder: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A service, and the first line that it prints."""
        process = subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            yield process, line
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(
    scope="module",
    params=[
        "blocked",
        pytest.param("installed", marks=needs_wheels),
    ],
)
def light(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Light:
    folder = tmp_path_factory.mktemp("light")
    if request.param == "blocked":
        return Light([sys.executable, "-c", BLOCKED], dict(os.environ), folder)
    installation = Installation(folder)
    installation.install("--no-deps", wheel("*-py3-none-any.whl"))
    installation.install("-r", REQUIREMENTS)
    weight = installation.weight_bytes()
    assert weight <= MOST_BYTES, f"the light installation weighs {weight / 1e6:.1f} MB"
    return Light([installation.bin / "simnmt"], installation.environment, folder)


@pytest.mark.deep
def test_doctor_prints_what_the_box_can_measure(light: Light) -> None:
    done = light.run("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert {"threads", "memory", "torch"} <= {line.split()[1] for line in done.stdout.splitlines()}
    assert re.search(r"^cannot +torch ", done.stdout, re.MULTILINE)


def ask(url: str, text: str) -> Any:
    body = json.dumps({"q": text, "source": "de", "target": "en"}).encode()
    request = urllib.request.Request(f"{url}/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        decision = dict(part.split("=") for part in answer.headers["Simnmt-Decision"].split(";"))
        return json.loads(answer.read())["translatedText"], decision["target"]


@pytest.mark.deep
def test_a_gateway_decides_between_a_service_of_its_box_and_a_server(light: Light) -> None:
    """C-NMT keeps what it expects to end here before an answer from the cloud, and sends long sentences away."""
    short, long = "ein Haus", " ".join(["wort"] * 60)
    facts = {"service": "server"}
    with sleeping(lambda number: 0.0, facts=facts) as local, sleeping(lambda number: 0.0, facts=facts) as cloud:
        options = ["--policy", "cnmt", "--set", "policies.cnmt.initial_transfer_ms=100", "--json"]
        places = ["--local-server", local.url, "--server", cloud.url, "--listen", "127.0.0.1:0", "--log", "log.jsonl"]
        with light.serving("live", "gateway", "@open-loop", *options, *places) as (gateway, line):
            url = json.loads(line)["url"]
            assert json.loads(line)["local_server"] == local.url
            assert [ask(url, text) for text in (short, long)] == [(short, "0"), (long, "1")]
            gateway.send_signal(signal.SIGTERM)
            out, err = gateway.communicate(timeout=30)
    assert (gateway.returncode, err) == (0, "")
    assert json.loads(out)["outcomes"] == {"done": 2}
    log = [json.loads(row) for row in (light.folder / "log.jsonl").read_text().splitlines()]
    assert [event["device"] for event in log if event["event"] == "request"] == ["gateway", "cloud"]


def test_what_needs_a_package_that_is_left_out_says_so_in_one_line(light: Light) -> None:
    done = light.run("run", "@quickstart", "--requests", "100", "--replications", "2")
    assert done.returncode == 2
    assert re.fullmatch(r"simnmt: this needs the package \w+ \(pip install simnmt, with its dependencies\)\n", done.stderr)


def specifications(text: str) -> dict[str, str]:
    """Versions by the name of each required package."""
    requirements = re.findall(r'^ *"?([a-zA-Z][\w.-]*)((?:[<>=!]=?[\w.,<>=]*)?)"?,?$', text, re.MULTILINE)
    return {name.lower(): versions for name, versions in requirements}


def test_the_light_requirements_are_those_of_the_package_without_what_is_left_out() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    base = project.partition("\ndependencies = [\n")[2].partition("\n]\n")[0]
    live = project.partition('\nlive = ["simnmt[models]", ')[2].partition("]\n")[0].replace(", ", ",\n")
    wanted = specifications(f"{base}\n{live}\n")
    assert set(wanted) >= LEFT_OUT
    assert specifications(REQUIREMENTS.read_text()) == {name: wanted[name] for name in set(wanted) - LEFT_OUT}
