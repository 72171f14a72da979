"""Whether two runs issue the same requests, by their scenarios and the files that they read, and what differs in these."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from simnmt.base.extension import OBJECT, is_code
from simnmt.results.summary import Row

_COUNTED = ("replications", "requests")


def unpaired_reasons(first: Row, second: Row, changed: Sequence[str], workload: str) -> Iterator[str]:
    """Yield why two runs do not issue the same requests of a workload; nothing if they do.

    Args:
        first, second: the resolved scenarios.
        changed: files that both read by the same name, with another content.
        workload: its name.
    """
    if second["seed"] != first["seed"]:
        yield f"seed {second['seed']} instead of {first['seed']}"
    for key in _COUNTED:
        ours, theirs = second[key], first[key]
        if ours != theirs:
            yield f"{ours:,} instead of {theirs:,} {key}"
    if second.get("fit", {}).get("share") != first.get("fit", {}).get("share"):
        yield "another fit.share"
    drawn = [scenario.get("workloads", {}).get(workload) for scenario in (first, second)]
    place = f"workloads.{workload}"
    yield from (f"another {key}" for key, _ in differences(drawn, place))
    yield from (f"{key} is an object of Python" for key in objects_in(drawn[1], place) if key in objects_in(drawn[0], place))
    others = {key: part for key, part in second.items() if key != "workloads"}
    elsewhere = [others, {name: part for name, part in second["workloads"].items() if name != workload}]
    for file in changed:
        if _mentions(drawn[1], file) or not any(_mentions(part, file) for part in elsewhere):
            yield f"another content of {file}"


def _mentions(content: Any, file: str) -> bool:
    """Return whether a part of a scenario names a file, code in it, or a folder that holds it."""
    if isinstance(content, dict):
        return any(_mentions(part, file) for part in content.values())
    if isinstance(content, list):
        return any(_mentions(part, file) for part in content)
    if not isinstance(content, str) or not content:
        return False
    # Code may import any module beside it.
    folder = Path(content.rpartition(":")[0]).parent if is_code(content) else content
    return content == file or file.startswith(f"{folder}/")


def changed_inputs(first: Row, second: Row) -> list[str]:
    """Return the files that two runs read by the same name and with another content; the runs by their manifests."""
    before = first.get("inputs", {})
    return [name for name, digest in second.get("inputs", {}).items() if before.get(name, digest) != digest]


def objects_in(content: Any, key: str = "") -> list[str]:
    """Return the places of a scenario that objects of Python had, of which a run records the class alone."""
    if not isinstance(content, dict):
        return []
    if content.keys() == {OBJECT}:
        return [key]
    return [place for name, part in content.items() for place in objects_in(part, f"{key}.{name}" if key else str(name))]


def differences(contents: Sequence[Any], key: str = "") -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield each key below which contents differ, joined by dots, with its values; None where it is missing."""
    if all(isinstance(content, dict) for content in contents):
        for name in dict.fromkeys(name for content in contents for name in content):
            yield from differences([content.get(name) for content in contents], f"{key}.{name}" if key else str(name))
    elif len({json.dumps(content, sort_keys=True) for content in contents}) > 1:
        yield key, contents
