"""Measure profile variants that multiply a part of the vocabulary, on real text by the trained model (FVP-11, XP-03)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from simnmt.batching import immediate, mini, top_up
from simnmt.calibrate.decoder_speeds import PARTS, clock_of, watched
from simnmt.calibrate.plan import batches
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.slot_decoder import BatchedRun, decode_batched
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.active_columns import load_vocabulary, with_measured_cost
from simnmt.nmt.vocabulary.bundle_file import read_bundle
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount
from simnmt.profile.decoder_block import STAGES, ActiveShare, DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.workload.text_lines import TextLines

Floats = NDArray[np.float64]
Sources = Sequence[Sequence[int]]
WARMING = 8
"""Sentences decoded each way before a clock runs."""
LEAST_STEPS = 8
"""Of a whole batch, below which nothing is told of it."""
LEAST_ROUNDS, ENOUGH_S = 2, 20.0
"""No more rounds than the least, once they have taken so long."""


@dataclass(frozen=True, slots=True)
class RestrictedSteps:
    """One part of the vocabulary at one batch size, beside the whole of it."""

    body: float
    """Of a step, over the body's seconds with the whole vocabulary."""
    product: float
    """Choosing columns and multiplying them, over the whole product."""
    search: float
    """Over that among the whole vocabulary."""
    likeliest_active: float
    """Share of its own rows and steps whose likeliest token of all was active (FVP-08)."""
    identical: float
    """Share of sentences translated to the same tokens as with the whole vocabulary."""
    active: ActiveShare
    """Its `s_per_share` in seconds of these very steps."""
    layer_s: float
    """Choosing columns, multiplying them and searching, of a step in this decoding: what `active.s_per_share` is a slope of."""


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
    """Decode the sources with the whole vocabulary (`fused` or not) and with each part, in turn, up to `rounds` times.

    Of each step the fastest round counts, which a busy box disturbs last: decoding is the same each time. Sentences that are
    done are replaced at once, and steps of fewer than `batch` sentences do not count; a part with hardly any others
    is left out. Raises `NmtError` and `OutOfMemory`.
    """
    decoding = _TextDecoding(model, sources, batch, beam, fused)
    names: list[str | None] = [None, *parts]
    for name in names:
        decoding.run(None if name is None else parts[name], WARMING)
    runs: dict[str | None, list[_Run]] = {name: [] for name in names}
    spent_s = 0.0
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            runs[name].append(decoding.run(None if name is None else parts[name]))
            spent_s += runs[name][-1].decoded.total_s
        if number + 1 >= LEAST_ROUNDS and spent_s > ENOUGH_S:
            break
    full, full_stages_s = runs[None][0].decoded, _fastest(runs[None], batch)
    steps_by_part = {}
    for name, part in parts.items():
        stages_s, account = _fastest(runs[name], batch), _account(runs[name][0].decoded)
        if min(len(full_stages_s), len(stages_s)) < LEAST_STEPS:
            continue
        audited = decoding.run(replace(part, audit=True)).decoded
        pairs = zip(audited.hypotheses, full.hypotheses, strict=True)
        body, product, search = (stages_s.mean(axis=0) / full_stages_s.mean(axis=0)).tolist()
        steps_by_part[name] = RestrictedSteps(
            body,
            product,
            search,
            likeliest_active=1.0 - _account(audited).miss_rate,
            identical=float(np.mean([restricted.tokens == other.tokens for restricted, other in pairs])),
            active=_active(account, np.asarray(runs[name][0].decoded.active) == batch, stages_s, model.vocab, batch),
            layer_s=float(stages_s[:, 1:].sum(axis=1).mean()),
        )
    return steps_by_part


@dataclass(frozen=True, slots=True)
class _Run:
    """One decoding."""

    decoded: BatchedRun
    stages_s: Floats
    """[steps, 3]: body, product with the choice of columns, search."""


class _TextDecoding:
    """One text, decoded at one batch size and beam."""

    def __init__(self, model: TranslationModel, sources: Sources, batch: int, beam: int, fused: bool) -> None:
        self._model, self._sources, self._beam, self._fused = model, sources, beam, fused
        self._batching = mini(1) if batch == 1 else top_up(batch, immediate(batch))
        self._clock = clock_of(model)

    def run(self, part: RestrictedVocabulary | None, first: int | None = None) -> _Run:
        if part is None:
            with self._read_at_each_move() as readings:
                decoded = self._decode(None, first)
            layer_s = self._layer_s(np.diff(np.array(readings), axis=0))
        else:
            decoded = self._decode(replace(part, account=SubsetAccount(clock=self._clock)), first)
            account = _account(decoded)
            layer_s = np.column_stack([np.add(account.assign_s, account.product_s), account.search_s])
        body_s = np.maximum(decoded.step_s - layer_s.sum(axis=1), 0.0)
        return _Run(decoded, np.column_stack([body_s, layer_s]))

    def _decode(self, part: RestrictedVocabulary | None, first: int | None) -> BatchedRun:
        sources = self._sources[:first]
        return decode_batched(
            self._model,
            sources,
            self._batching,
            beam=self._beam,
            max_len=[2 * len(source) + 10 for source in sources],
            fused=self._fused,
            vocabulary=part,
            clock=self._now_s,
        )

    def _now_s(self) -> float:
        if self._watch is not None:
            self._readings.append(tuple(self._watch[part] for part in PARTS))
        return self._clock()

    @contextmanager
    def _read_at_each_move(self) -> Iterator[list[tuple[float, ...]]]:
        """What the decoder's parts have taken so far, read wherever decoding looks at the clock: before and after each move."""
        with watched(self._model, self._clock) as seconds:
            self._watch, self._readings = seconds, []
            try:
                yield self._readings
            finally:
                self._watch = None

    def _layer_s(self, moves_s: Floats) -> Floats:
        """[steps, 2]: product, and bias, softmax and search; of all moves only steps need the body."""
        steps_s = dict(zip(PARTS, moves_s[moves_s[:, PARTS.index("body")] > 0.0].T, strict=True))
        if self._fused:
            return np.column_stack([steps_s["fused_product"], steps_s["fused"]])
        return np.column_stack([steps_s["project"], steps_s["softmax"] + steps_s["search"]])

    _watch: dict[str, float] | None = None
    _readings: list[tuple[float, ...]]


def _fastest(runs: Sequence[_Run], batch: int) -> Floats:
    """Return the stages of each step of a whole batch in its fastest round, shape (steps, 3)."""
    # Rounding may depend on what else the box does and change a sentence; such a round cannot be compared.
    alike = [run for run in runs if np.array_equal(run.decoded.active, runs[0].decoded.active)]
    steps = np.flatnonzero(runs[0].decoded.active == batch)
    stages_s = np.array([run.stages_s for run in alike])
    fastest = stages_s.sum(axis=2).argmin(axis=0)
    fastest_stages_s: Floats = stages_s[fastest[steps], steps]
    return fastest_stages_s


def _active(account: SubsetAccount, whole: NDArray[np.bool_], stages_s: Floats, vocab: int, batch: int) -> ActiveShare:
    """With the slope of the output layer's seconds over the share; none where all steps are alike, or times fall."""
    columns = np.asarray(account.columns, np.int64)[whole]
    share = columns / vocab
    slope_s = float(np.polyfit(share, stages_s[:, 1:].sum(axis=1), 1)[0]) if np.ptp(share) > 0.0 else 0.0
    return ActiveShare.of(
        columns.tolist(),
        vocab,
        by_sentence=list(account.sentence_share.values()) if batch == 1 else None,
        s_per_share=slope_s if slope_s > 0.0 else None,
    )


def _account(run: BatchedRun) -> SubsetAccount:
    assert run.subset is not None
    return run.subset


_KINDS = {"clusters": "clustered", "candidates": "candidates"}
"""What a bundle holds, and the decoder that it makes."""
LEAST_SENTENCES, BATCHES = 200, 10
"""Of the text: as many, and so many batches; a quick calibration has half of both."""
MOST_TOKENS = 60
"""Of a source; longer ones are left out."""
ROUNDS, QUICK_ROUNDS = 5, 2


@dataclass(frozen=True, slots=True)
class Restricted:
    """A trained model with parts of its vocabulary, and the text on which they are held against the whole."""

    model: TranslationModel
    sources: Sequence[Sequence[int]]
    parts: Mapping[str, RestrictedVocabulary]
    """By the vocabulary that a decoder's settings name."""
    notes: tuple[str, ...]

    @classmethod
    def load(cls, settings: Settings, threads: int | None) -> Restricted:
        """Load bundles and a text. Raises `CalibrationError` for two bundles of a kind, another model's, or an empty text."""
        assert settings.text is not None
        translator = Translator.load(Path(settings.model), device=settings.device, threads=threads)
        model, text = cast("TranslationModel", translator.model), Path(settings.text)
        parts, notes = dict[str, RestrictedVocabulary](), list[str]()
        for path in map(Path, settings.vocabulary):
            kind = _KINDS[read_bundle(path).kind]
            if kind in parts:
                what = f"a second bundle of {kind} columns, where a profile holds one"
                raise CalibrationError(what, path=path, remedy="give one --vocabulary of each kind")
            direction = settings.direction if kind == "clustered" else None
            parts[kind] = load_vocabulary(path, model, direction=direction)
            notes.append(f"{kind}: {path.name}, {parts[kind].label}")
        count = _sentences(settings, batches(settings)[-1])
        lines = islice((line for line in TextLines(text, kept="head", pipes=False) if line.strip()), 2 * count)
        kept = (ids for ids in translator.source.encode(lines) if 1 < len(ids) <= MOST_TOKENS)
        sources = list(islice(kept, count))
        if not sources:
            what = f"no sentence of at most {MOST_TOKENS} tokens"
            raise CalibrationError(what, path=text, remedy="give a text, one sentence a line")
        sample = f"on up to the first {len(sources):,} sentences of {text.name}"
        notes.append(f"{sample}; of each step the fastest of several rounds counts")
        return cls(model, sources, parts, tuple(notes))

    def with_costs(self) -> Restricted:
        """The same, with products made as a measurement here and now says is fastest."""
        return replace(self, parts={kind: with_measured_cost(part, self.model) for kind, part in self.parts.items()})

    def beside(self, full: DecoderVariant, settings: Settings) -> Iterator[DecoderVariant]:
        """Yield the variants that restrict the vocabulary, with the beam and batch of `full`.

        Measured ratios scale its stages, so that all variants of a block are of one measurement. Columns go to the fused
        kernel as they are, whether the layer is fused or not: the same times stand for both.
        """
        decoder = full.settings
        steps_by_kind = restricted_steps(
            self.model,
            self.sources[: _sentences(settings, full.batch)],
            self.parts,
            batch=full.batch,
            beam=decoder.beam,
            fused=decoder.fused,
            rounds=QUICK_ROUNDS if settings.mode == "quick" else ROUNDS,
        )
        for kind, steps in steps_by_kind.items():
            for fused in (False, True):
                restricted = decoder.model_copy(update={"vocabulary": kind, "fused": fused})
                yield _scaled(full, restricted, steps)


def _scaled(full: DecoderVariant, settings: DecoderSettings, steps: RestrictedSteps) -> DecoderVariant:
    parts = {stage: max(getattr(full, stage) * _ratio(steps, stage), 1e-9) for stage in STAGES}
    times = (parts["product_s"] + parts["search_s"]) / steps.layer_s
    return DecoderVariant(
        settings=settings,
        batch=full.batch,
        step_s=sum(parts.values()),
        body_s=parts["body_s"],
        product_s=parts["product_s"],
        search_s=parts["search_s"],
        likeliest_active=steps.likeliest_active,
        identical=steps.identical,
        active=_of_the_block(steps.active, times),
    )


def _ratio(steps: RestrictedSteps, stage: str) -> float:
    return {"body_s": steps.body, "product_s": steps.product, "search_s": steps.search}[stage]


def _of_the_block(active: ActiveShare, times: float) -> ActiveShare:
    """With its seconds, which are the output layer's, in those of the block."""
    return active if active.s_per_share is None else active.model_copy(update={"s_per_share": times * active.s_per_share})


def _sentences(settings: Settings, batch: int) -> int:
    return max(LEAST_SENTENCES, BATCHES * batch) // (2 if settings.mode == "quick" else 1)


def check_vocabularies(settings: Settings, weights: str) -> None:
    """Raises for what could not be measured, before hours of measuring."""
    if weights != "checkpoint":
        what = f"{settings.model} has random weights, whose contexts say nothing of text"
        raise CalibrationError(what, remedy="give the folder of a trained model, or leave --vocabulary out")
    try:
        Restricted.load(settings, None)
    except NmtError as error:
        raise CalibrationError(error.what, path=error.path, remedy=error.remedy) from None
