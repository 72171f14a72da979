"""The translation quality of a run: its inputs, how often each device translated each sentence, corpus scores, intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.cases import Case, Group, Unit
from simnmt.policies.gains import Gains
from simnmt.results.columns import Array
from simnmt.results.places import Place
from simnmt.results.summary import Numbers, Row
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.workload.configuration import TextLengths
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import Fertility
from simnmt.workload.quality import (
    CHRF,
    SCORES,
    STATISTICS,
    Resamples,
    ScoredText,
    corpus_chrf,
    join_scores,
    read_scores,
    resampling_weights,
)

ENDS = ("", "_low", "_high")
SentenceCounts = Mapping[str, NDArray[np.int32]]
"""By workload, the answered requests of each sentence of its text by device, shape (sentences, devices)."""
Naming = Callable[..., AbstractContextManager[None]]


def read_quality(
    scenario: ScenarioConfiguration,
    workload: str,
    base: Path,
    table: LengthTable,
    naming: Naming,
    cached: Callable[[Any, Callable[[], Any]], Any],
) -> ScoredText | None:
    """Read the scores of a workload's sentences; None if the scenario has none.

    `naming` names a key of the scenario in errors, `cached` reads each file once. Raises `CorpusError`.
    """
    quality, part = scenario.quality_of(workload), scenario.workloads[workload]
    if not quality or not isinstance(part.lengths, TextLengths):
        return None
    place = ("quality",) if part.quality is None else ("workloads", workload, "quality")
    scores = []
    for device in scenario.devices:
        named = quality[device]
        with naming(*place, device):
            path = base / named.scores
            scores.append(cached(("scores", path, named.model), partial(read_scores, path, named.model)))
    text = part.lengths.model_dump_json(warnings=False), base
    with naming(*place):
        sentences, raw = cached(("sentences", text), lambda: (part.lengths.sentences(base), part.lengths.load(base)))
        if (raw.src_unit, raw.tgt_unit) != (table.src_unit, table.tgt_unit):
            stated = part.lengths.fertility or Fertility()
            factors = (stated.factor("src", table.src_unit) or 1.0, stated.factor("tgt", table.tgt_unit) or 1.0)
            sentences = sentences.converted(raw, *factors)
        key = (
            "quality",
            text,
            table.end_of_sentence,
            table.src_unit,
            table.tgt_unit,
            *((one.path, one.model) for one in scores),
        )
        joined: ScoredText = cached(key, partial(join_scores, sentences, table, scores))
    return joined


def count_sentences(unit: Unit, group: Group, target: Array, text_row: Array, part: Array | None) -> SentenceCounts:
    """Return the counts of the requests of a group that are answered after the warm-up.

    `target`, `text_row` and `part`: of all requests in the order of issue; -1 is the target of one without an answer.
    """
    counts: dict[str, NDArray[np.int32]] = {}
    counted, devices = target >= 0, len(unit.scenario.devices)
    counted[: unit.scenario.warm_up_requests] = False
    for name in dict.fromkeys(unit.parts[number].case.name for number in group.parts):
        text = next(one.case.quality for one in unit.parts if one.case.name == name)
        numbers = [number for number in group.parts if unit.parts[number].case.name == name]
        rows = np.flatnonzero(counted if part is None else counted & np.isin(part, numbers))
        cells = text_row[rows].astype(np.int64) * devices + target[rows]
        assert text is not None, "all workloads of a unit have scores, or none has"
        counts[name] = np.bincount(cells, minlength=len(text) * devices).astype(np.int32).reshape(-1, devices)
    return counts


def fitted_gains(unit: Unit, evaluated: NDArray[np.int32] | None) -> Gains | None:
    """Return the gains in chrF of the last device over the first one that policies expect; None without quality.

    A corpus counts a sentence by its length: the gain of each is that of its own chrF, times its characters over the mean.
    `evaluated`: the sentences of the requests; the gains are fitted on the others, but for those with an equal line among them.
    """
    text = unit.case.quality
    if text is None or evaluated is None:
        return None
    first, last = (corpus_chrf(text.statistics[number][:, : len(CHRF)].astype(np.float64)) for number in (0, -1))
    is_kept, row = text.pair >= 0, text.rows[0]  # equal lines have one row of scores
    features = {name: np.where(is_kept, column[row], 0.0) for name, column in text.scores[0].features.items()}
    fit = np.flatnonzero(is_kept & ~np.isin(row, row[evaluated]))
    uniform = random_streams.uniform(*unit.stream("random signal"), len(text))
    characters = text.statistics[0][:, 1].astype(np.float64)  # of the reference
    return Gains(features, (last - first) * characters / characters[is_kept].mean(), fit, uniform)


def corpus_numbers(unit: Unit, counts: SentenceCounts) -> Numbers:
    """Return the corpus scores of the requests of a group in one run."""
    texts = {one.case.name: one.case.quality for one in unit.parts}
    sums = np.zeros(len(STATISTICS))
    for name, of_workload in counts.items():
        text = texts[name]
        assert text is not None
        sums += text.sums(of_workload).sum(axis=0)
    return {name: float(score(sums)) for name, score in SCORES.items()}


def with_quality_intervals(
    rows: Sequence[Row], cases: Mapping[str, Case], runs: Sequence[Mapping[Place, SentenceCounts]], seed: int
) -> list[Row]:
    """Return the rows with the corpus scores over all replications and their 95 % intervals; the same rows without quality.

    Sentences are resampled, and all requests of a sentence with it: with many requests a sentence, the interval is that of a
    text of as many sentences, with few that of as many requests. All policies meet the same resampled sentences. `runs`: of
    each unit, the counts by place.
    """
    totals: dict[Place, dict[str, NDArray[np.int32]]] = {}
    for place, counts in ((place, counts) for run in runs for place, counts in run.items()):
        total = totals.setdefault(place, {})
        for name, of_workload in counts.items():
            total[name] = total[name] + of_workload if name in total else of_workload
    if not totals:
        return list(rows)
    resamples = Resamples(len(totals))
    for name, text in ((name, case.quality) for name, case in cases.items() if case.quality is not None):
        none = np.zeros((len(text), len(text.statistics)), np.int32)
        for block, weights in resampling_weights(len(text), seed, text.digest):
            samples = [text.sums(total.get(name, none), block) for total in totals.values()]
            resamples.add(weights, np.stack(samples, axis=1))
    columns: dict[Place, Row] = {
        place: {f"{name}{end}": value for name, ends in scores.items() for end, value in zip(ENDS, ends, strict=True)}
        for place, scores in zip(totals, resamples.estimates(), strict=True)
    }
    return [row | columns.get(Place.of(row), {}) for row in rows]


def describe_quality(case: Case, devices: Sequence[str]) -> str:
    """Return a note on the scores of a workload; empty without any."""
    text = case.quality
    if text is None:
        return ""
    models = ", ".join(f"{one.model} on {device}" for device, one in zip(devices, text.scores, strict=True))
    return (
        f"{case.name}: chrF and BLEU are corpus scores of the sentences of the answered requests, as the models translate them "
        f"({models}; {text.scores[0].signatures['chrf']}, {text.scores[0].signatures['bleu']}). Their intervals are over texts "
        f"of as many sentences, not over replications: {int((text.pair >= 0).sum()):,} sentences were scored."
    )
