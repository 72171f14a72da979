"""Measure decoder variants that multiply a part of the vocabulary, on real text with the trained model (FVP-11, XP-03)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.batching import immediate, mini, top_up
from simnmt.calibrate.cells import batches
from simnmt.calibrate.decoder_speeds import PARTS, watched
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.kernels.projection_timing import clock_of
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

Sources = Sequence[Sequence[int]]
WARMING = 8
"""Sentences that each variant decodes untimed first."""
LEAST_STEPS = 8
"""Fewest steps of a whole batch from which times are computed."""
LEAST_ROUNDS, ENOUGH_S = 2, 20.0
"""Rounds after which none is added once they have taken this time."""


@dataclass(frozen=True, slots=True)
class RestrictedSteps:
    """Steps with a part of the vocabulary at one batch size, relative to steps with the whole vocabulary."""

    ratios: tuple[float, ...]
    """Seconds over those with the whole vocabulary, for each of `STAGES`; the product includes the choice of columns."""
    likeliest_active: float
    """Share of rows and steps whose likeliest token of the whole vocabulary was active (FVP-08)."""
    identical: float
    """Share of sentences translated to the same tokens as with the whole vocabulary."""
    active: ActiveShare
    """Its `s_per_share` is in seconds of these steps."""
    layer_s: float
    """Seconds per step of choosing columns, multiplying them and searching, of which `active.s_per_share` is a slope."""


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
    """Decode the sources alternately with the whole vocabulary (`fused` or not) and with each part, up to `rounds` times.

    The fastest round of each step counts, because a busy box disturbs it least; all rounds decode the same. Finished sentences
    are replaced at once, and steps of fewer than `batch` sentences do not count; a part with too few whole steps is left out.
    Raises `NmtError` and `OutOfMemory`.
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
        steps_by_part[name] = RestrictedSteps(
            ratios=tuple((stages_s.mean(axis=0) / full_stages_s.mean(axis=0)).tolist()),
            likeliest_active=1.0 - _account(audited).miss_rate,
            identical=float(np.mean([restricted.tokens == other.tokens for restricted, other in pairs])),
            active=_active(account, np.asarray(runs[name][0].decoded.active) == batch, stages_s, model.vocab, batch),
            layer_s=float(stages_s[:, 1:].sum(axis=1).mean()),
        )
    return steps_by_part


@dataclass(frozen=True, slots=True)
class _Run:
    """One decoding, and its seconds by step and stage, shape (steps, 3)."""

    decoded: BatchedRun
    stages_s: Floats


class _TextDecoding:
    """Decodes a text at one batch size and beam."""

    def __init__(self, model: TranslationModel, sources: Sources, batch: int, beam: int, fused: bool) -> None:
        self._model, self._sources, self._beam, self._fused = model, sources, beam, fused
        self._batching = mini(1) if batch == 1 else top_up(batch, immediate(batch))
        self._clock = clock_of(model.device)

    def run(self, part: RestrictedVocabulary | None, first: int | None = None) -> _Run:
        if part is None:
            with watched(self._model, self._clock) as seconds:
                readings = list[tuple[float, ...]]()
                decoded = self._decode(None, first, lambda: readings.append(tuple(seconds[part] for part in PARTS)))
            layer_s = self._layer_s(np.diff(np.array(readings), axis=0))
        else:
            decoded = self._decode(replace(part, account=SubsetAccount(clock=self._clock)), first, lambda: None)
            account = _account(decoded)
            layer_s = np.column_stack([np.add(account.assign_s, account.product_s), account.search_s])
        body_s = np.maximum(decoded.step_s - layer_s.sum(axis=1), 0.0)
        return _Run(decoded, np.column_stack([body_s, layer_s]))

    def _decode(self, part: RestrictedVocabulary | None, first: int | None, read: Callable[[], None]) -> BatchedRun:
        """`read`: called when decoding reads the clock, which it does before and after each change of the batch or step."""

        def clock() -> float:
            read()
            return self._clock()

        sources = self._sources[:first]
        return decode_batched(
            self._model,
            sources,
            self._batching,
            beam=self._beam,
            max_len=[2 * len(source) + 10 for source in sources],
            fused=self._fused,
            vocabulary=part,
            clock=clock,
        )

    def _layer_s(self, changes_s: Floats) -> Floats:
        """Return the seconds of product and of bias, softmax and search by step; only steps run the body."""
        steps_s = dict(zip(PARTS, changes_s[changes_s[:, PARTS.index("body")] > 0.0].T, strict=True))
        if self._fused:
            return np.column_stack([steps_s["fused_product"], steps_s["fused"]])
        return np.column_stack([steps_s["project"], steps_s["softmax"] + steps_s["search"]])


def _fastest(runs: Sequence[_Run], batch: int) -> Floats:
    """Return the stages of each step of a whole batch in its fastest round, shape (steps, 3)."""
    # Rounding may depend on the load of the box and change a sentence; such a round cannot be compared.
    alike = [run for run in runs if np.array_equal(run.decoded.active, runs[0].decoded.active)]
    steps = np.flatnonzero(runs[0].decoded.active == batch)
    stages_s = np.array([run.stages_s for run in alike])
    fastest = stages_s.sum(axis=2).argmin(axis=0)
    fastest_stages_s: Floats = stages_s[fastest[steps], steps]
    return fastest_stages_s


def _active(account: SubsetAccount, whole: NDArray[np.bool_], stages_s: Floats, vocab: int, batch: int) -> ActiveShare:
    """Return the active shares with the slope of the layer's seconds over the share, unless it is not positive."""
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
"""Vocabulary of the decoder settings by content of a bundle."""
LEAST_SENTENCES, BATCHES = 200, 10
"""Fewest sentences and batches of the text; a quick calibration takes half of both."""
MOST_TOKENS = 60
"""Longest source; longer ones are left out."""
ROUNDS, QUICK_ROUNDS = 5, 2


@dataclass(frozen=True, slots=True)
class Restricted:
    """A trained model with parts of its vocabulary, and the text on which they are compared with the whole vocabulary."""

    model: TranslationModel
    sources: Sequence[Sequence[int]]
    parts: Mapping[str, RestrictedVocabulary]
    """By vocabulary of the decoder settings."""
    notes: tuple[str, ...]

    @classmethod
    def load(cls, settings: Settings, threads: int | None) -> Restricted:
        """Load bundles and a text.

        Raises `CalibrationError` for two bundles of a kind, a bundle of another model, and an empty text.
        """
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
        """Return a copy whose products use the fastest method on this box."""
        return replace(self, parts={kind: with_measured_cost(part, self.model) for kind, part in self.parts.items()})

    def beside(self, full: DecoderVariant, settings: Settings) -> Iterator[DecoderVariant]:
        """Yield the variants with a restricted vocabulary, with the beam and batch of `full`.

        Measured ratios scale the stages of `full`, so that all variants of a block share one measurement. Active columns always
        go to the fused kernel, so fused and plain variants have the same times.
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
    """Scale a variant by measured ratios; the slope over the active share becomes seconds of the block."""
    stages_s = [max(getattr(full, stage) * ratio, 1e-9) for stage, ratio in zip(STAGES, steps.ratios, strict=True)]
    body_s, product_s, search_s = stages_s
    slope_s = steps.active.s_per_share
    scaled_s = None if slope_s is None else slope_s * (product_s + search_s) / steps.layer_s
    return DecoderVariant(
        settings=settings,
        batch=full.batch,
        step_s=sum(stages_s),
        body_s=body_s,
        product_s=product_s,
        search_s=search_s,
        likeliest_active=steps.likeliest_active,
        identical=steps.identical,
        active=steps.active.model_copy(update={"s_per_share": scaled_s}),
    )


def _sentences(settings: Settings, batch: int) -> int:
    return max(LEAST_SENTENCES, BATCHES * batch) // (2 if settings.mode == "quick" else 1)


def check_vocabularies(settings: Settings, weights: str) -> None:
    """Raise `CalibrationError` for vocabularies that could not be measured, before hours of measuring."""
    if weights != "checkpoint":
        what = f"{settings.model} has random weights, whose contexts say nothing of text"
        raise CalibrationError(what, remedy="give the folder of a trained model, or leave --vocabulary out")
    try:
        Restricted.load(settings, None)
    except NmtError as error:
        raise CalibrationError(error.what, path=error.path, remedy=error.remedy) from None
