"""Scenarios with `quality` whose scores do not fit: each fault is one line with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import Command, assert_one_line
from tests.workload.scored_text import made_text

QUALITY = "quality: {gateway: small.parquet, cloud: big.parquet}"
FAULTS = {
    "missing.parquet: no such file": ("small.parquet", "missing.parquet"),
    "quality.gateway: {here}/small.parquet: no scores of a model 'smal' (did you mean small?)": (
        "gateway: small.parquet",
        "gateway: {scores: small.parquet, model: smal}",
    ),
    "quality.gateway.modle: unknown key (did you mean model?)": (
        "gateway: small.parquet",
        "gateway: {scores: small.parquet, modle: small}",
    ),
    "quality.gateway.1.decoder.bean: unknown key (did you mean beam?)": (
        "gateway: small.parquet",
        "gateway: [small.parquet, {decoder: {bean: 4}, scores: big.parquet}]",
    ),
    "devices.gateway: no scores in quality.gateway are of its profile and decoder (add them)": (
        "gateway: small.parquet",
        "gateway: [{profile: cloud.json, scores: small.parquet}, {decoder: {beam: 4}, scores: big.parquet}]",
    ),
    "quality.gateway: {here}/none.json: cannot read the profile": (
        "gateway: small.parquet",
        "gateway: [{profile: none.json, scores: big.parquet}, small.parquet]",
    ),
    "quality: the scores of cloud are unknown (give quality.cloud)": (", cloud: big.parquet", ""),
    "quality.clud: unknown device (did you mean cloud?)": ("cloud: big", "clud: big"),
    "workloads.news.lengths: quality is known by sentence": (
        "lengths: {source: news.fr, target: news.en, src_unit: word, tgt_unit: word}",
        'lengths: "@de-en-news"',
    ),
    "workloads.news.lines_per_request: quality is known of single sentences": (
        "    lengths:",
        "    lines_per_request: 2\n    lengths:",
    ),
    "quality: it is not recorded which model's translation a cache holds": (
        "gateway: {profile: gateway.json}",
        "gateway: {profile: gateway.json, cache: {entries: 9}}",
    ),
    "no score of small for 1 of 58 sentences, the first is sentence 1 (": ("news.fr", "changed.fr"),
    "metrics.0: chrf is not known: the translations of workload news have no scores": (QUALITY, "metrics: [chrf]"),
    "slo.chrf: chrf cannot be limited by 158": (QUALITY, f"{QUALITY}\nslo: {{chrf: 158}}"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_faults_of_quality_are_one_line_with_their_place(what: str, folder: Path, simnmt: Command) -> None:
    made_text(60).write(folder, "news")
    (folder / "changed.fr").write_text((folder / "news.fr").read_text().replace(" 0\n", " zero\n", 1))
    whole = f"{(folder / 'small.yaml').read_text().replace('news.de', 'news.fr')}{QUALITY}\n"
    (folder / "small.yaml").write_text(whole)
    assert simnmt("run", "small.yaml", "--requests", "50").status == 0
    old, new = FAULTS[what]
    assert old in whole
    (folder / "small.yaml").write_text(whole.replace(old, new))
    done = simnmt("run", "small.yaml", "--requests", "50")
    assert done.status == 2
    assert_one_line(done.err)
    assert done.err.startswith("simnmt: small.yaml:") and what.format(here=folder) in done.err, done.err
