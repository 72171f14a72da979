"""Decoder variants that multiply a part of the vocabulary, measured on real text with the trained model (FVP-11, XP-03)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from simnmt.base.arrays import Floats
from simnmt.batching import immediate, mini, top_up
from simnmt.calibrate.cells import batches
from simnmt.calibrate.decoder_speeds import PARTS, watched
from simnmt.calibrate.harness import rounds
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.calibrate.vocabulary_bench import clock_of
from simnmt.nmt.decoder import BatchedRun, decode
from simnmt.nmt.errors import OutOfMemory
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.output_layer import Output
from simnmt.nmt.search import Search
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.bundle_file import read_bundle
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount, load_vocabulary, with_measured_cost
from simnmt.profile.decoder_block import STAGES, ActiveShare, DecoderVariant
from simnmt.workload.text_lines import TextLines

LEAST_STEPS = 8
"""Fewest steps of a whole batch from which times are computed."""
ROUNDS, QUICK_ROUNDS, ENOUGH_S = 5, 2, 20.0
"""Rounds, of which none is added once they have taken this time."""
LEAST_SENTENCES, BATCHES = 200, 10
"""Fewest sentences and batches of the text; a quick calibration takes half of both."""
MOST_TOKENS = 60
"""Longest source; longer ones are left out."""
_KINDS = {"clusters": "clustered", "candidates": "candidates"}
"""Vocabulary of the decoder settings by content of a bundle."""


@dataclass
class _Run:
    """One decoding, and the seconds of its steps of whole batches by stage, shape (steps, 3)."""

    decoded: BatchedRun
    stages_s: Floats

    @property
    def account(self) -> SubsetAccount:
        assert self.decoded.subset is not None
        return self.decoded.subset


@dataclass(frozen=True)
class TextDecoding:
    """A trained model with parts of its vocabulary, and the text on which they are compared with the whole vocabulary."""

    model: TranslationModel
    sources: Sequence[Sequence[int]]
    parts: Mapping[str, RestrictedVocabulary]
    """By vocabulary of the decoder settings."""
    notes: tuple[str, ...] = ()
    quick: bool = False
    _last: dict[str, _Run] = field(default_factory=dict, init=False)

    @classmethod
    def load(cls, settings: Settings, threads: int | None) -> TextDecoding:
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
        quick = settings.mode == "quick"
        count = _sentences(batches(settings)[-1], quick)
        lines = islice((line for line in TextLines(text, kept="head", pipes=False) if line.strip()), 2 * count)
        sources = list(islice((ids for ids in translator.source.encode(lines) if 1 < len(ids) <= MOST_TOKENS), count))
        if not sources:
            what = f"no sentence of at most {MOST_TOKENS} tokens"
            raise CalibrationError(what, path=text, remedy="give a text, one sentence a line")
        notes.append(f"on up to the first {len(sources):,} sentences of {text.name}, of several rounds the fastest")
        return cls(model, sources, parts, tuple(notes), quick)

    def with_costs(self) -> TextDecoding:
        """Return a copy whose products use the fastest method on this box."""
        return replace(self, parts={kind: with_measured_cost(part, self.model) for kind, part in self.parts.items()})

    def variants(self, full: DecoderVariant) -> list[DecoderVariant]:
        """Return the variants with a restricted vocabulary, with the beam and batch of `full`, by decoding in turn.

        Measured ratios to the whole vocabulary scale the stages of `full`, so that all variants of a block share one
        measurement. The fastest round counts, because a busy box disturbs it least. Active columns always go to the fused
        kernel, so fused and plain variants have the same times. A part with too few whole steps is left out. Raises
        `OutOfMemory`.
        """
        cases = {name: partial(self._stages_s, name, full) for name in (full.settings.vocabulary, *self.parts)}
        frame = rounds(cases, QUICK_ROUNDS if self.quick else ROUNDS, ENOUGH_S, name="decoder", again=False)
        if frame["seconds"].isna().any():
            raise OutOfMemory("a decoding of the text does not fit")
        fastest = frame.loc[frame.groupby("case")["seconds"].idxmin()].set_index("case")
        variants = list[DecoderVariant]()
        for kind in self.parts:
            if min(len(self._last[kind].stages_s), len(self._last[full.settings.vocabulary].stages_s)) >= LEAST_STEPS:
                variants += self._restricted(full, kind, fastest)
        return variants

    def _restricted(self, full: DecoderVariant, kind: str, fastest: pd.DataFrame) -> list[DecoderVariant]:
        whole, run = self._last[full.settings.vocabulary], self._last[kind]
        stages_s = [getattr(full, stage) * fastest.loc[kind, stage] / fastest.loc["full", stage] for stage in STAGES]
        account = self._decode(kind, full, audit=True).account
        same = [
            ours.tokens == theirs.tokens for ours, theirs in zip(run.decoded.hypotheses, whole.decoded.hypotheses, strict=True)
        ]
        columns = np.asarray(run.account.columns, np.int64)[run.decoded.active == full.batch]
        layer_s, share = run.stages_s[:, 1:].sum(axis=1), columns / self.model.vocab
        # Seconds of this run, brought to those of the block.
        slope_s = float(np.polyfit(share, layer_s, 1)[0]) if np.ptp(share) > 0.0 else 0.0
        slope_s *= sum(stages_s[1:]) / float(layer_s.mean())
        active = ActiveShare.of(
            columns.tolist(),
            self.model.vocab,
            by_sentence=list(run.account.sentence_share.values()) if full.batch == 1 else None,
            s_per_share=slope_s if slope_s > 0.0 else None,
        )
        fidelity = {"likeliest_active": 1.0 - account.miss_rate, "identical": float(np.mean(same)), "active": active}
        settings = [full.settings.model_copy(update={"vocabulary": kind, "fused": fused}) for fused in (False, True)]
        return [DecoderVariant.of(decoder, full.batch, *stages_s).model_copy(update=fidelity) for decoder in settings]

    def _stages_s(self, name: str, full: DecoderVariant) -> dict[str, float]:
        """Decode the text; return the seconds of all steps, and the mean seconds of each stage of a whole batch's steps."""
        run = self._last[name] = self._decode(name, full)
        means_s = run.stages_s.mean(axis=0) if len(run.stages_s) else np.full(len(STAGES), np.nan)
        return {"seconds": run.decoded.total_s, **dict(zip(STAGES, means_s.tolist(), strict=True))}

    def _decode(self, name: str, full: DecoderVariant, *, audit: bool = False) -> _Run:
        """Decode the text with the part of this name; finished sentences are replaced at once."""
        batch, clock, readings = full.batch, clock_of(self.model.device), list[tuple[float, ...]]()
        sources = self.sources[: _sentences(batch, self.quick)]
        part = self.parts.get(name)
        if part is not None:
            part = replace(part, account=None if audit else SubsetAccount(clock=clock), audit=audit)

        with watched(self.model, clock) as watched_s:

            def read_clock() -> float:
                """Read the parts too whenever decoding reads the clock: before and after each change of the batch or step."""
                readings.append(tuple(watched_s[part] for part in PARTS))
                return clock()

            decoded = decode(
                self.model,
                sources,
                mini(1) if batch == 1 else top_up(batch, immediate(batch)),
                search=Search(full.settings.beam),
                output=Output(full.settings.fused, part),
                max_len=[2 * len(source) + 10 for source in sources],
                clock=clock if part else read_clock,
            )
        if audit:
            return _Run(decoded, np.empty((0, len(STAGES))))
        if part is not None:
            account = _Run(decoded, np.empty(0)).account
            layer_s = np.column_stack([np.add(account.assign_s, account.product_s), account.search_s])
        else:
            changes_s = np.diff(np.array(readings), axis=0)
            steps_s = dict(zip(PARTS, changes_s[changes_s[:, PARTS.index("body")] > 0.0].T, strict=True))  # only they run it
            product, *search = ("fused_product", "fused") if full.settings.fused else ("project", "softmax", "search")
            layer_s = np.column_stack([steps_s[product], sum(steps_s[stage] for stage in search)])
        body_s = np.maximum(decoded.step_s - layer_s.sum(axis=1), 0.0)
        return _Run(decoded, np.column_stack([body_s, layer_s])[decoded.active == batch])


def _sentences(batch: int, quick: bool) -> int:
    return max(LEAST_SENTENCES, BATCHES * batch) // (2 if quick else 1)
