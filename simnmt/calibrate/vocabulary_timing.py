"""Decode steps on real text, with the whole vocabulary and with parts of it in turn: stages, active shares, agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.batching import immediate, mini, top_up
from simnmt.calibrate.decoder_watch import clock_of, watched
from simnmt.costs.active_share import ActiveShare
from simnmt.nmt.batched import BatchedRun, decode_batched
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary
from simnmt.nmt.vocabulary.subset_account import SubsetAccount

Floats = NDArray[np.float64]
Sources = Sequence[Sequence[int]]
WARMING = 8
"""Sentences decoded each way before a clock runs."""
LEAST_STEPS = 8
"""Of a whole batch, below which nothing is told of it."""


@dataclass(frozen=True, slots=True)
class RestrictedSteps:
    """One part of the vocabulary at one batch size, beside the whole of it."""

    body: float
    """Of a step, over the body's seconds with the whole vocabulary."""
    product: float
    """Choosing columns and multiplying them, over the whole product."""
    search: float
    """Over that among the whole vocabulary."""
    agreement: float
    """Share of its rows and steps whose likeliest token of all was active (FVP-08)."""
    identical: float
    """Share of sentences translated to the same tokens as with the whole vocabulary."""
    active: ActiveShare
    """Its `s_per_share` in seconds of these very steps."""
    full_step_s: float
    """Of a step with the whole vocabulary, in this decoding."""


def restricted_steps(
    model: TranslationModel,
    sources: Sources,
    parts: Mapping[str, RestrictedVocabulary],
    *,
    batch: int,
    beam: int,
    fused: bool,
    rounds: int,
) -> dict[str, RestrictedSteps]:
    """Decode the sources with the whole vocabulary (`fused` or not) and with each part, in turn, `rounds` times.

    Of each step the fastest round counts, which a busy box disturbs last: decoding is the same each time. Sentences that are
    done are replaced at once, and steps of fewer than `batch` sentences do not count; where hardly any other is left, nothing
    is told. Raises `NmtError` and `OutOfMemory`.
    """
    way = _Way(model, sources, batch, beam, fused)
    names: list[str | None] = [None, *parts]
    for name in names:
        way.run(None if name is None else parts[name], WARMING)
    runs: dict[str | None, list[BatchedRun]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            runs[name].append(way.run(None if name is None else parts[name]))
    full = runs[None]
    whole = full[0].active == batch
    if whole.sum() < LEAST_STEPS:
        return {}
    alike = [run.step_s for run in full if np.array_equal(run.active, full[0].active)]
    full_step_s = float(np.min(alike, axis=0)[whole].mean())
    product, search = way.shares_of_full()
    full_s = np.array([1.0 - product - search, product, search]) * full_step_s
    said = [each.tokens for each in full[0].hypotheses]
    found = {}
    for name, part in parts.items():
        timed = _Timed.of(runs[name], batch)
        if len(timed.columns) < LEAST_STEPS:
            continue
        audited = way.run(replace(part, audit=True))
        body, product, search = (timed.stages_s.mean(axis=0) / full_s).tolist()
        found[name] = RestrictedSteps(
            body,
            product,
            search,
            agreement=1.0 - _account(audited).miss_rate,
            identical=float(np.mean([each.tokens == own for each, own in zip(audited.hypotheses, said, strict=True)])),
            active=timed.active(model.vocab, batch, _account(audited)),
            full_step_s=full_step_s,
        )
    return found


@dataclass(frozen=True, slots=True)
class _Timed:
    """Whole batches' steps of one part, each as in its fastest round."""

    columns: NDArray[np.int64]
    stages_s: Floats
    """[steps, 3]: body, product with the choice of columns, search."""

    @classmethod
    def of(cls, runs: Sequence[BatchedRun], batch: int) -> _Timed:
        # Rounding may hang on what else the box does, and a sentence then be another; such a round cannot be compared.
        runs = [run for run in runs if np.array_equal(run.active, runs[0].active)]
        step_s = np.array([run.step_s for run in runs])
        layer_s = np.array([[np.add(told.assign_s, told.product_s), told.search_s] for told in map(_account, runs)])
        fastest = step_s.argmin(axis=0)
        steps = np.flatnonzero(runs[0].active == batch)
        own_s, own_layer_s = step_s[fastest[steps], steps], layer_s[fastest[steps], :, steps]
        body_s = np.maximum(own_s - own_layer_s.sum(axis=1), 0.0)
        columns = np.asarray(_account(runs[0]).columns, np.int64)[steps]
        return cls(columns, np.column_stack([body_s, own_layer_s]))

    def active(self, vocab: int, batch: int, account: SubsetAccount) -> ActiveShare:
        """With the slope of the output layer's seconds over the share; none where all steps are alike, or times fall."""
        share = self.columns / vocab
        slope_s = float(np.polyfit(share, self.stages_s[:, 1:].sum(axis=1), 1)[0]) if np.ptp(share) > 0.0 else 0.0
        return ActiveShare.of(
            self.columns.tolist(),
            vocab,
            by_sentence=list(account.sentence_share.values()) if batch == 1 else None,
            s_per_share=slope_s if slope_s > 0.0 else None,
        )


class _Way:
    """One text, decoded at one batch size and beam."""

    def __init__(self, model: TranslationModel, sources: Sources, batch: int, beam: int, fused: bool) -> None:
        self._model, self._sources, self._beam, self._fused = model, sources, beam, fused
        self._batching = mini(1) if batch == 1 else top_up(batch, immediate(batch))
        self._clock = clock_of(model)

    def run(self, part: RestrictedVocabulary | None, first: int | None = None) -> BatchedRun:
        sources = self._sources[:first]
        options: dict[str, Any] = {"fused": self._fused, "clock": self._clock}
        if part is not None:
            options["vocabulary"] = replace(part, account=SubsetAccount(clock=self._clock))
        most = [2 * len(source) + 10 for source in sources]
        return decode_batched(self._model, sources, self._batching, beam=self._beam, max_len=most, **options)

    def shares_of_full(self) -> tuple[float, float]:
        """Of the steps with the whole vocabulary: the output layer's product, and bias, softmax and search."""
        with watched(self._model, self._clock) as seconds:
            run = self.run(None)
        steps_s = float(run.step_s.sum())
        product = seconds["fused_product"] if self._fused else seconds["project"]
        search = seconds["fused"] if self._fused else seconds["softmax"] + seconds["search"]
        return product / steps_s, search / steps_s


def _account(run: BatchedRun) -> SubsetAccount:
    assert run.subset is not None
    return run.subset
