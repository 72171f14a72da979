"""RIPE Atlas results: an array, one object a line, or a single object; of one probe and one measurement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.names import format_list
from simnmt.network.errors import TraceError
from simnmt.network.foreign_text import named, quoted
from simnmt.network.traces.how_to_read import HowToRead, Reply
from simnmt.network.traces.readings import Readings
from simnmt.network.traces.ripe_atlas_round import UnknownFormError, kind_of, number, round_ms

_WORTH: dict[Reply, str] = {
    "min": "the least of each round's replies",
    "mean": "the mean of each round's replies",
    "first": "the first of each round's replies",
}
_IN_STEP_S = 3600.0
"""A probe that was in step with its controller within an hour is off by far less than a round."""
_NO_UNIX_TIME_S = 1e11


def read_ripe_atlas(path: Path, text: str, how: HowToRead) -> list[Readings]:
    """The RTTs of a file of results: one value a round.

    Raises `TraceError` where the text is no such file, or holds several probes or measurements and `how` chooses none.
    """
    results = _chosen(_results(path, text), how, path)
    oddities: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    times, rtts_ms, adrift = [], [], 0
    for place, result in results:
        time_s = number(result.get("timestamp"))
        try:
            kinds[kind_of(result)] += 1
            rtts_ms.append(round_ms(result, how.reply, oddities))
        except UnknownFormError as error:
            raise place.wrong(str(error), error.remedy) from None
        if not 0.0 < time_s < _NO_UNIX_TIME_S:
            raise place.wrong(f"has the timestamp {quoted(result.get('timestamp'))}, which is no Unix time")
        times.append(time_s)
        adrift += "lts" in result and not 0.0 <= number(result["lts"]) <= _IN_STEP_S
    if len(kinds) > 1:
        what = f"results of {len(kinds)} kinds: {_listed(kinds)}"
        raise TraceError(what, path=path, remedy="keep those of one kind in the file")
    granted = [f"rounds of a probe whose clock was not known to be right (lts): {adrift:,}"] if adrift else []
    said = [f"{what}: {count:,}" for what, count in oddities.items()]
    addresses = Counter(address for _, result in results if (address := _destination(result)))
    if len(addresses) > 1:
        granted.append(f"{len(addresses)} destination addresses: {_listed(addresses)}")
    first = results[0][1]
    goal = named(first.get("dst_name")) or named(first.get("name")) or named(next(iter(addresses), "an unnamed destination"))
    source = f"RIPE Atlas probe {_id(first, 'probe')}, measurement {_id(first, 'measurement')}, {next(iter(kinds))} to {goal}"
    source += f"; {_WORTH[how.reply]}"
    return [Readings("rtt", np.array(times), np.array(rtts_ms) / 1e3, "measured", source, tuple(said), tuple(granted))]


class _Place:
    """Where a result stands in its file."""

    def __init__(self, path: Path, index: int, line: int | None) -> None:
        self._path, self._index, self._line = path, index, line

    def wrong(self, what: str, remedy: str = "remove it, or mend it") -> TraceError:
        name = "the result" if self._line is not None else f"result {self._index + 1}"
        return TraceError(f"{name} {what}", path=self._path, line=self._line, remedy=remedy)


def _results(path: Path, text: str) -> list[tuple[_Place, Mapping[str, Any]]]:
    try:
        whole = _parsed(text, path, 1)
        found = whole if isinstance(whole, list) else [whole]
        placed = [(_Place(path, index, None), result) for index, result in enumerate(found)]
    except _ExtraDataError:
        lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
        placed = [
            (_Place(path, index, number), _parsed(line, path, number, alone=True)) for index, (number, line) in enumerate(lines)
        ]
    if not placed:
        raise TraceError("no results", path=path, remedy="give at least one round")
    for place, result in placed:
        if not isinstance(result, Mapping):
            raise place.wrong("is no JSON object")
    return placed


class _ExtraDataError(Exception):
    """A whole value ended before the text did."""


def _parsed(text: str, path: Path, line: int, alone: bool = False) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and not alone:
            raise _ExtraDataError from None
        what = f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        place = (line + error.lineno - 1, error.colno)
        raise TraceError(what, path=path, line=place[0], column=place[1], remedy="download the file again") from None
    except (RecursionError, ValueError):
        raise TraceError("no JSON that could hold results", path=path, line=line, remedy="download the file again") from None


def _chosen(
    results: list[tuple[_Place, Mapping[str, Any]]], how: HowToRead, path: Path
) -> list[tuple[_Place, Mapping[str, Any]]]:
    """The results of the one probe and the one measurement that are meant."""
    wanted = {"probe": how.probe, "measurement": how.measurement}
    held = {noun: Counter(_id(result, noun) for _, result in results) for noun in wanted}
    for noun, identity in wanted.items():
        if identity is not None and str(identity) not in held[noun]:
            what = f"no {noun} {identity} among {_listed(held[noun])}"
            raise TraceError(what, path=path, remedy=f"choose another by --{noun}")
    chosen = [
        (place, result)
        for place, result in results
        if all(identity is None or _id(result, noun) == str(identity) for noun, identity in wanted.items())
    ]
    if not chosen:
        what = f"probe {how.probe} has no results of measurement {how.measurement}"
        raise TraceError(what, path=path, remedy="choose another by --probe or --measurement")
    left = {noun: Counter(_id(result, noun) for _, result in chosen) for noun in wanted}
    several = [noun for noun in wanted if len(left[noun]) > 1]
    if several:
        what = "; ".join(f"results of {len(left[noun])} {noun}s: {_listed(left[noun])}" for noun in several)
        raise TraceError(what, path=path, remedy=f"choose one by {' and '.join(f'--{noun}' for noun in several)}")
    return chosen


def _id(result: Mapping[str, Any], noun: str) -> str:
    identity = result.get("prb_id" if noun == "probe" else "msm_id", "unnamed")
    return named(identity) if isinstance(identity, str) else quoted(identity)


def _listed(held: Counter[str]) -> str:
    return format_list((f"{name} ({count:,})" for name, count in held.most_common()), ",")


def _destination(result: Mapping[str, Any]) -> str | None:
    address = result.get("dst_addr", result.get("addr"))
    return named(address) or None
