"""Decoder variants that multiply a part of the vocabulary, measured on real text with the trained model (FVP-11, XP-03)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np

from simnmt.batching import immediate, mini, top_up
from simnmt.calibrate.harness import rounds
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.calibrate.vocabulary_bench import clock_of
from simnmt.nmt.decoder import BatchedRun, decode
from simnmt.nmt.errors import OutOfMemory
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.output_layer import Output
from simnmt.nmt.search import Search
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount, load_vocabulary
from simnmt.profile.decoder_block import DecoderVariant
from simnmt.workload.text_lines import TextLines

LEAST_STEPS = 8
"""Fewest steps of a whole batch from which times are computed."""
ROUNDS, QUICK_ROUNDS, ENOUGH_S = 5, 2, 20.0
"""Rounds, of which none is added once they have taken this time."""
LEAST_SENTENCES, BATCHES = 200, 10
"""Fewest sentences and batches of the text; a quick calibration takes half of both."""
MOST_TOKENS = 60
"""Longest source; longer ones are left out."""


@dataclass(frozen=True)
class TextDecoding:
    """A trained model with parts of its vocabulary, and the text on which they are compared with the whole vocabulary."""

    model: TranslationModel
    sources: Sequence[Sequence[int]]
    parts: Mapping[str, RestrictedVocabulary]
    """By vocabulary of the decoder settings."""
    notes: tuple[str, ...] = ()
    quick: bool = False

    @classmethod
    def load(cls, settings: Settings, threads: int | None = None, batch: int = 1) -> TextDecoding:
        """Load bundles, and a text for batches of up to `batch` sentences.

        Raises `CalibrationError` for two bundles of a kind, a bundle of another model, and an empty text.
        """
        assert settings.text is not None
        translator = Translator.load(Path(settings.model), device=settings.device, threads=threads)
        model, text = cast("TranslationModel", translator.model), Path(settings.text)
        parts, notes = dict[str, RestrictedVocabulary](), list[str]()
        for path in map(Path, settings.vocabulary):
            part = load_vocabulary(path, model)
            if part.kind in parts:
                what = f"a second bundle of {part.kind} columns, where a profile holds one"
                raise CalibrationError(what, path=path, remedy="give one --vocabulary of each kind")
            parts[part.kind] = part
            notes.append(f"{part.kind}: {path.name}, {part.label}")
        quick = settings.mode == "quick"
        count = _sentences(batch, quick)
        lines = islice((line for line in TextLines(text, kept=True, pipes=False) if line.strip()), 2 * count)
        sources = list(islice((ids for ids in translator.source.encode(lines) if 1 < len(ids) <= MOST_TOKENS), count))
        if not sources:
            what = f"no sentence of at most {MOST_TOKENS} tokens"
            raise CalibrationError(what, path=text, remedy="give a text, one sentence a line")
        notes.append(f"on up to the first {len(sources):,} sentences of {text.name}, of several rounds the fastest")
        return cls(model, sources, parts, tuple(notes), quick)

    def variants(self, full: DecoderVariant) -> list[DecoderVariant]:
        """Return the variants with a restricted vocabulary, with the beam and batch of `full`, by decoding in turn.

        The ratio of a whole step to that with the whole vocabulary scales the step of `full`, so that all variants of a block
        share one measurement; product and search have the shares that the account of the run gives them. The fastest round
        counts, because a busy box disturbs it least. Active columns always go to the fused kernel, so fused and plain variants
        have the same times. A part with too few whole steps is left out. Raises `OutOfMemory`.
        """
        runs: dict[str, list[BatchedRun]] = {kind: [] for kind in ("full", *self.parts)}

        def run(kind: str) -> dict[str, float]:
            runs[kind].append(self._decode(kind, full))
            return {"seconds": runs[kind][-1].total_s}

        limit = QUICK_ROUNDS if self.quick else ROUNDS
        frame = rounds({kind: partial(run, kind) for kind in runs}, limit, ENOUGH_S, name="decoder", again=False)
        if frame["seconds"].isna().any():
            raise OutOfMemory("a decoding of the text does not fit")
        whole, *restricted = (min(of_kind, key=lambda run: run.total_s) for of_kind in runs.values())
        return [
            variant
            for kind, fastest in zip(self.parts, restricted, strict=True)
            if min((one.active == full.batch).sum() for one in (whole, fastest)) >= LEAST_STEPS
            for variant in self._variants_of(kind, full, whole, fastest)
        ]

    def _variants_of(self, kind: str, full: DecoderVariant, whole: BatchedRun, run: BatchedRun) -> list[DecoderVariant]:
        account, steps = run.subset, run.active == full.batch
        audited = self._decode(kind, full, audit=True).subset
        assert account is not None and audited is not None
        columns, choose_s, multiply_s, search_s = np.array([step[2:3] + step[4:] for step in account.steps])[steps].mean(axis=0)
        product_s = choose_s + multiply_s
        step_s = max(run.step_s[steps].mean(), product_s + search_s)
        scale = full.step_s / whole.step_s[whole.active == full.batch].mean()
        same = [ours.tokens == theirs.tokens for ours, theirs in zip(run.hypotheses, whole.hypotheses, strict=True)]
        fidelity = {"likeliest_active": 1.0 - audited.miss_rate, "identical": float(np.mean(same))}
        fidelity["active_share"] = float(columns) / self.model.vocab
        stages_s = scale * (step_s - product_s - search_s), scale * product_s, scale * search_s
        settings = [full.settings.model_copy(update={"vocabulary": kind, "fused": fused}) for fused in (False, True)]
        return [
            DecoderVariant.of(decoder, full.batch, *map(float, stages_s)).model_copy(update=fidelity) for decoder in settings
        ]

    def _decode(self, kind: str, full: DecoderVariant, *, audit: bool = False) -> BatchedRun:
        clock, batch, part = clock_of(self.model.device), full.batch, self.parts.get(kind)
        if part is not None:
            part = replace(part, account=SubsetAccount(clock), audit=audit)
        sources = self.sources[: _sentences(batch, self.quick)]
        return decode(
            self.model,
            sources,
            mini(1) if batch == 1 else top_up(batch, immediate(batch)),
            search=Search(full.settings.beam),
            output=Output(full.settings.fused, part),
            max_len=[2 * len(source) + 10 for source in sources],
            clock=clock,
        )


def _sentences(batch: int, quick: bool) -> int:
    return max(LEAST_SENTENCES, BATCHES * batch) // (2 if quick else 1)
