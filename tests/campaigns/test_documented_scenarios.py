"""The scenarios in the documentation: each runs, and one with damaged bytes runs or is refused in one line."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.experiment.inputs import read_inputs
from simnmt.scenario.source import open_source
from simnmt.scenario.yaml_text import write_document
from tests.campaigns.harness import SCALE, assert_short_lines, mutate_bytes, run_cases

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import run_examples  # noqa: E402

BLOCKS = {
    f"{page.name}:{line}": text
    for page in run_examples.PAGES
    for line, language, text, _ in run_examples.examples(page.read_text(encoding="utf-8"))
    if language == "yaml" and not run_examples.NAMED_SCENARIO.match(text)  # those read what commands of their page have written
}


def whole_text(scenario: Path | dict[str, Any]) -> bytes:
    return scenario.read_bytes() if isinstance(scenario, Path) else write_document(scenario).encode()


def test_there_are_scenarios_in_the_documentation() -> None:
    assert len(BLOCKS) > 10
    assert {name.partition(":")[0] for name in BLOCKS} >= {"arrivals.md", "batching.md", "scenario.md", "sti.md", "traces.md"}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_documented_scenario_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = run_examples.scenario_of(BLOCKS[block], tmp_path)
    requests = round(50 * SCALE)
    result = simnmt.run(scenario, requests=requests, replications=1)
    assert result.summary_rows
    assert {row["requests"] for row in result.summary_rows} == {requests}


def test_a_documented_scenario_with_damaged_bytes_runs_or_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [whole_text(run_examples.scenario_of(text, tmp_path)) for text in BLOCKS.values()]
    path = tmp_path / "damaged.yaml"

    def check(generator: random.Random) -> None:
        path.write_bytes(mutate_bytes(generator.choice(texts), generator))
        try:
            source = open_source(path)
            read_inputs(source.scenario, tmp_path, source.document)
        except InputError as error:
            assert_short_lines(error)

    run_cases("documented scenarios", 40, check)
