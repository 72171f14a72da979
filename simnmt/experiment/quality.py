"""The translation quality of a run: how often each device translated each sentence, corpus scores, and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.cases import Case, Group, RunPlan, Unit
from simnmt.policies.gains import Gains
from simnmt.results.columns import Array
from simnmt.results.places import Place
from simnmt.results.summary import Numbers, Row
from simnmt.workload.quality import (
    CHRF,
    SCORES,
    STATISTICS,
    Resamples,
    ScoredText,
    Translated,
    corpus_chrf,
    resampling_weights,
)

ENDS = ("", "_low", "_high")
PLACES_AT_A_TIME = 64
"""Places whose resamples are in memory together: 28 MB."""
SentenceCounts = Mapping[tuple[str, ...], Translated]
"""By scored text (`ScoredText.key`), the sentences of the answered requests."""


def count_sentences(unit: Unit, group: Group, target: Array, text_row: Array, part: Array | None) -> SentenceCounts:
    """Return the counts of the requests of a group that are answered after the warm-up.

    `target`, `text_row` and `part`: of all requests in the order of issue; -1 is the target of one without an answer.
    """
    counted, parts = target >= 0, dict[tuple[str, ...], list[int]]()
    counted[: unit.scenario.warm_up_requests] = False
    for number in group.parts:
        text = unit.parts[number].case.quality
        assert text is not None, "all workloads of a unit have scores, or none has"
        parts.setdefault(text.key, []).append(number)
    counts = {}
    for key, numbers in parts.items():
        rows = counted if part is None else counted & np.isin(part, numbers)
        here = [text_row[rows & (target == device)] for device in range(len(unit.scenario.devices))]
        counts[key] = [np.unique(sentences, return_counts=True) for sentences in here]
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
    texts = _texts(part.case for part in unit.parts)
    sums = np.zeros(len(STATISTICS))
    for key, translated in counts.items():
        for (sentences, times), statistics in zip(translated, texts[key].statistics, strict=True):
            sums += times @ statistics[sentences]
    return {name: float(score(sums)) for name, score in SCORES.items()}


def _texts(cases: Iterable[Case]) -> dict[tuple[str, ...], ScoredText]:
    return {case.quality.key: case.quality for case in cases if case.quality is not None}


def with_quality_intervals(rows: Sequence[Row], plan: RunPlan, runs: Sequence[Mapping[Place, SentenceCounts]]) -> list[Row]:
    """Return the rows with the corpus scores over all replications and their 95 % intervals; the same rows without quality.

    Sentences are resampled, and all requests of a sentence with it: with many requests a sentence, the interval is that of a
    text of as many sentences, with few that of as many requests. All policies meet the same resampled sentences. `runs`: of
    each unit, the counts by place.
    """
    of_places: dict[Place, list[SentenceCounts]] = {}
    for place, counts in ((place, counts) for run in runs for place, counts in run.items()):
        of_places.setdefault(place, []).append(counts)
    texts: dict[str, list[ScoredText]] = {}
    for text in _texts([*plan.cases.values(), *(case for site in plan.sites for case in site.cases.values())]).values():
        texts.setdefault(text.digest, []).append(text)
    columns: dict[Place, Row] = {}
    for first in range(0, len(of_places), PLACES_AT_A_TIME):
        places = [*of_places][first : first + PLACES_AT_A_TIME]
        resamples = Resamples(len(places))
        for digest, of_text in texts.items():
            for block, weights in resampling_weights(len(of_text[0]), plan.scenario.seed, digest):
                samples = np.zeros((block.stop - block.start, len(places), len(STATISTICS)))
                for text, (number, place) in product(of_text, enumerate(places)):
                    samples[:, number] += text.sums([run[text.key] for run in of_places[place] if text.key in run], block)
                resamples.add(weights, samples)
        for place, scores in zip(places, resamples.estimates(), strict=True):
            columns[place] = {
                f"{name}{end}": value for name, ends in scores.items() for end, value in zip(ENDS, ends, strict=True)
            }
    return [row | columns.get(Place.of(row), {}) for row in rows]


def describe_quality(plan: RunPlan, workload: str) -> str:
    """Return a note on the scores of a workload; empty without any."""
    text = plan.cases[workload].quality
    if text is None:
        return ""
    models = []
    for used in plan.used_targets:
        if used.case.name == workload and used.case.quality is not None:
            number = list(used.scenario.devices).index(used.target.device)
            models.append(f"{used.case.quality.scores[number].model} on {used.label}")
    return (
        f"{workload}: chrF and BLEU are corpus scores of the sentences of the answered requests, as the models translate them "
        f"({', '.join(models)}; {text.scores[0].signatures['chrf']}, {text.scores[0].signatures['bleu']}). Their intervals are "
        f"over texts of as many sentences, not over replications: {int((text.pair >= 0).sum()):,} sentences were scored."
    )
