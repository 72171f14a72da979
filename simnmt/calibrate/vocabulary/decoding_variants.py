"""Variants of a decoder that multiply a part of the vocabulary, measured on real text by the trained model (FVP-11, XP-03)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.plan import batches
from simnmt.calibrate.settings import Settings
from simnmt.calibrate.vocabulary.decoding_steps import RestrictedSteps, restricted_steps
from simnmt.costs.active_share import ActiveShare
from simnmt.costs.decoder_block import STAGES, DecoderVariant
from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.bundle_file import read_bundle
from simnmt.nmt.vocabulary.load import load_vocabulary, with_measured_cost
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary
from simnmt.workload.text_lines import TextLines

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
        """What the settings name. Raises `CalibrationError` for two bundles of a kind, another model's, or an empty text."""
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
        told = f"on up to the first {len(sources):,} sentences of {text.name}"
        notes.append(f"{told}; of each step the fastest of several rounds counts")
        return cls(model, sources, parts, tuple(notes))

    def with_costs(self) -> Restricted:
        """The same, with products made as a measurement here and now says is fastest."""
        return replace(self, parts={kind: with_measured_cost(part, self.model) for kind, part in self.parts.items()})

    def beside(self, full: DecoderVariant, settings: Settings) -> Iterator[DecoderVariant]:
        """The variants that restrict the vocabulary, with the beam and batch of one that does not.

        Measured ratios scale its stages, so that all variants of a block are of one measurement. Columns go to the fused
        kernel as they are, whether the layer is fused or not: the same times stand for both.
        """
        own = full.settings
        found = restricted_steps(
            self.model,
            self.sources[: _sentences(settings, full.batch)],
            self.parts,
            batch=full.batch,
            beam=own.beam,
            fused=own.fused,
            rounds=QUICK_ROUNDS if settings.mode == "quick" else ROUNDS,
        )
        for kind, told in found.items():
            for fused in (False, True):
                restricted = own.model_copy(update={"vocabulary": kind, "fused": fused})
                yield _scaled(full, restricted, told)


def _scaled(full: DecoderVariant, settings: DecoderSettings, told: RestrictedSteps) -> DecoderVariant:
    parts = {stage: max(getattr(full, stage) * _ratio(told, stage), 1e-9) for stage in STAGES}
    times = (parts["product_s"] + parts["search_s"]) / told.layer_s
    return DecoderVariant(
        settings=settings,
        batch=full.batch,
        step_s=sum(parts.values()),
        body_s=parts["body_s"],
        product_s=parts["product_s"],
        search_s=parts["search_s"],
        likeliest_active=told.likeliest_active,
        identical=told.identical,
        active=_of_the_block(told.active, times),
    )


def _ratio(told: RestrictedSteps, stage: str) -> float:
    return {"body_s": told.body, "product_s": told.product, "search_s": told.search}[stage]


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
