"""The page on provenance states of every shipped number what its file states."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from simnmt.base import shipped_files
from simnmt.network.series_csv import read_rtt_csv
from simnmt.profile import profile_doubts, read_profile
from simnmt.workload.length_table import read_table

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "background" / "provenance.md").read_text(encoding="utf-8")
BLOCKS = ("execution", "step", "encoder", "decoder", "disk", "sti")


def profile_row(name: str) -> str:
    """Return the row of a device profile: device, model, engine, kinds by block, day, warnings."""
    profile = read_profile(shipped_files.find("calibration", name))
    kinds: dict[str, list[str]] = {}
    for block in BLOCKS:
        if (value := getattr(profile, block)) is not None:
            # The disk of a streamed model has no kind of its own.
            kinds.setdefault(getattr(value, "kind", profile.execution.kind), []).append(block)
    engine = profile.engine
    how = profile.model.name
    if engine is not None:
        weights = "random" if engine.weights == "random" else "trained"
        how += f", {engine.backend} {engine.compute_type}, {weights} weights"
    stated = "; ".join(f"**{kind}**: {', '.join(blocks)}" for kind, blocks in kinds.items())
    day, warnings = profile.provenance.date[:10], len(profile_doubts(profile))
    return f"| `@{name}` | {profile.device.name} | {how} | {stated} | {day} | {warnings} |"


def rtt_row(name: str) -> str:
    """Return the row of an RTT series: kind, samples, mean, origin."""
    series = read_rtt_csv(shipped_files.find("traces/rtt", name))
    probe = re.search(r"RIPE Atlas probe \d+", series.source)
    assert probe is not None
    return f"| `@{name}` | **{series.kind}** | {len(series.time_s)} | {1e3 * series.mean_s:.1f} | {probe.group()} |"


def length_row(name: str) -> str:
    """Return the row of a length table: units, pairs, text, licence."""
    table = read_table(shipped_files.find("traces/lengths", name))
    text = table.source.split("; ")[0].split(":")[0]
    return f"| `@{name}` | {table.src_unit} / {table.tgt_unit} | {table.pairs:,} | {text} |"


def scenario_row(name: str) -> str:
    """Return the row of a scenario: what its devices, networks and arrivals rest on."""
    document = YAML(typ="safe").load(shipped_files.find("scenarios", name).read_text(encoding="utf-8"))
    profiles = [device["profile"] for device in document["devices"].values()]
    names = {name for profile in profiles for name in (profile.values() if isinstance(profile, dict) else [profile])}
    kinds = {read_profile(shipped_files.find("calibration", name)).execution.kind for name in names}
    links = {f"`{rtt}`" if isinstance(rtt, str) else "a constant" for rtt in rtts(document["networks"])}
    arrivals = {workload.get("arrivals", {}).get("kind", "back_to_back") for workload in document["workloads"].values()}
    return f"| `@{name}` | {', '.join(sorted(kinds))} | {', '.join(sorted(links))} | {', '.join(sorted(arrivals))} |"


def rtts(value: object) -> Iterator[object]:
    """Yield what each link of a part of a scenario has as `rtt`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "rtt":
                yield inner
            else:
                yield from rtts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from rtts(inner)


ROWS: dict[shipped_files.Kind, Callable[[str], str]] = {
    "calibration": profile_row,
    "traces/rtt": rtt_row,
    "traces/lengths": length_row,
    "scenarios": scenario_row,
}


@pytest.mark.parametrize("kind", ROWS)
def test_the_page_states_of_each_shipped_file_what_the_file_states(kind: shipped_files.Kind) -> None:
    rows = [ROWS[kind](name) for name in shipped_files.names(kind)]
    missing = [row for row in rows if row not in PAGE.splitlines()]
    assert missing == [], "put these rows into docs/background/provenance.md:\n" + "\n".join(missing)


def test_the_page_names_no_file_that_is_not_shipped() -> None:
    shipped = {f"@{name}" for kind in ROWS for name in shipped_files.names(kind)}
    assert set(re.findall(r"`(@[a-z0-9-]+)`", PAGE)) <= shipped


def test_the_page_names_every_study_and_table_of_a_paper() -> None:
    studies = sorted(path.relative_to(ROOT) for path in (ROOT / "calibration").glob("*/*.json"))
    tables = sorted(path.relative_to(ROOT) for path in (ROOT / "simnmt" / "papers").glob("*/published.py"))
    assert studies and len(tables) >= 5
    assert [str(path) for path in (*studies, *tables) if f"`{path}`" not in PAGE] == []


def test_the_kinds_of_studies_are_those_of_their_files() -> None:
    for path in sorted((ROOT / "calibration").glob("*/*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        # A study of STI measures accuracies under costs of its devices.
        kind = document.get("kind") or " and ".join(["measured", *sorted({device["kind"] for device in document["devices"]})])
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{path.relative_to(ROOT)}`"))
        assert row.split("|")[2].replace("*", "").strip() == kind
