"""Measure how many words of a trained model stay the same with each rung of the ladder (SHARP-09, SHARP-10, XP-03)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.sharp_speeds import Progress, rung_settings
from simnmt.kernels.packed_products import Clipping
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.errors import need
from simnmt.nmt.models import load_model
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, Subwords
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.workload.text_lines import TextLines

SENTENCES = 200
IDENTITIES = "identities"
"""Key of kept embeddings, kept attention and merged states without the other techniques."""
MOST_TOKENS = 60
"""Longest source; longer ones are left out."""


@dataclass(frozen=True, slots=True)
class RungAgreement:
    """One rung compared with the baseline on the same sentences."""

    key: str
    settings: DecoderSettings
    tokens: int
    """Tokens of the baseline's translations, with end tokens."""
    tokens_same: int
    """Tokens for which the likeliest word along the baseline's translation is the baseline's (teacher-forced)."""
    sentences: int
    sentences_same: int
    """Sentences translated freely to the same words."""
    distinct_share: float
    """Share of distinct states among the hypotheses, mean over sentences (SHARP-09)."""
    bleu: float | None = None
    """None without references."""
    clipping: Clipping | None = None
    """Clipping by its 16-bit products; None for float32 products."""

    @property
    def share(self) -> float:
        """Share of tokens that are the same."""
        return self.tokens_same / self.tokens


class _Translated:
    """Sentences translated by the exact decoder of a trained model, with which other decoders are compared."""

    def __init__(self, model: str, sources: list[list[int]], beam: int) -> None:
        loaded = load_model(model)
        if not isinstance(loaded.model, AttentionalModel) or loaded.weights != "checkpoint":
            what = f"{model} is no trained attentional model"
            raise CalibrationError(what, remedy="train one: simnmt nmt train --model sharp")
        self._model, self._sources = loaded.model, sources
        self.exact = DecoderSettings(beam=beam, gemm="float32")
        self._decoder = self.translator(self.exact)
        self.words = [translation.tokens for translation in self._decoder.translate(sources)]
        self.tokens = sum(len(words) + 1 for words in self.words)

    def translator(self, settings: DecoderSettings) -> SharpTranslator:
        """Return the decoder with the whole vocabulary."""
        return SharpTranslator([self._model], settings, max_len=2 * MOST_TOKENS)

    def same_words(self, other: SharpTranslator) -> int:
        """Count the steps along the translations with the same likeliest word, end tokens included (SHARP-10).

        Each decoder encodes the sources with its own kernels, so that the noise of its source side counts.
        """
        same = 0
        for source, words in zip(self._sources, self.words, strict=True):
            forced = [*words, self._model.eos_token]
            best, others = (one.forced(one.encode(source), forced).best for one in (self._decoder, other))
            same += int((best == others).sum())
        return same


def sharp_agreement(
    model: str, text: Path, beam: int, progress: Progress | None = None, *, references: Path | None = None
) -> list[RungAgreement]:
    """Translate the first `SENTENCES` of a text, one per line, by each rung with the whole vocabulary.

    `model`: folder of a trained attentional model; `references`: a translation of each line, for BLEU. Raises
    `CalibrationError` for another model, for a text without a sentence and for references with another number of lines, and the
    errors of reading.
    """
    sources, expected = encoded_text(model, text, references)
    translated = _Translated(model, sources, beam)
    # All exact techniques and no other: on the ladder they come after the 16-bit product.
    identities = translated.exact.model_copy(update={"embeddings": "frequent", "attention": "precomputed", "merge": True})
    rungs = {translated.exact: "baseline", identities: IDENTITIES}
    for activations in ("table", "polynomial"):
        rungs |= {settings: key for key, settings in rung_settings(beam, None, activations).items()}
    agreements = []
    for done, (settings, key) in enumerate(rungs.items()):
        if progress is not None:
            progress(done, len(rungs), f"what rungs change: {key}")
        translator = translated.translator(settings)
        translations = translator.translate(sources)
        words = [translation.tokens for translation in translations]
        rung = RungAgreement(
            key=key,
            settings=settings,
            tokens=translated.tokens,
            tokens_same=translated.same_words(translator),
            sentences=len(words),
            sentences_same=sum(ours == theirs for ours, theirs in zip(words, translated.words, strict=True)),
            distinct_share=float(np.mean([translation.distinct_share for translation in translations])),
            bleu=None if references is None else _bleu(model, words, expected),
            clipping=translator.clipping(),
        )
        agreements.append(rung)
    return agreements


def noise_agreement(
    model: str, text: Path, variants: Iterable[DecoderSettings], beam: int
) -> tuple[dict[DecoderSettings, float], int, int]:
    """Compare variants with the exact decoder of this beam, all with the whole vocabulary (SHARP-10).

    Returns by variant the share of the words of the exact translations that are the likeliest here, too (teacher-forced), and
    the numbers of these words and of the sentences. Only rounding counts: variants that differ by identities, beam or
    candidates share an agreement. Raises the errors of `sharp_agreement`.
    """
    translated = _Translated(model, encoded_text(model, text)[0], beam)
    rounded = {
        variant: translated.exact.model_copy(update={option: getattr(variant, option) for option in variant.noise})
        for variant in variants
    }
    same = {settings: translated.same_words(translated.translator(settings)) for settings in dict.fromkeys(rounded.values())}
    shares = {variant: same[settings] / translated.tokens for variant, settings in rounded.items()}
    return shares, translated.tokens, len(translated.words)


def encoded_text(model: str, text: Path, references: Path | None = None) -> tuple[list[list[int]], list[str]]:
    """Return the first `SENTENCES` of a text as tokens of a model's folder, without long ones, and their references."""
    pairs = list[tuple[str, str]]()
    for line, reference in zip_longest(*(TextLines(file, kept="head", pipes=False) for file in (text, references or text))):
        if line is None or reference is None:
            remedy = "give one reference a line, in the order of the text"
            raise CalibrationError(f"not as many lines as {text}", path=references, remedy=remedy)
        pairs += [(line, reference)] if line.strip() else []
        if len(pairs) == SENTENCES:
            break
    encoded = Subwords.read(Path(model) / SOURCE_TOKENIZER).encode(line for line, _ in pairs)
    kept = [(source, reference) for source, (_, reference) in zip(encoded, pairs, strict=True) if len(source) <= MOST_TOKENS]
    if not kept:
        what = f"no sentence of at most {MOST_TOKENS} tokens"
        raise CalibrationError(what, path=text, remedy="give a text, one sentence a line")
    return [source for source, _ in kept], [reference for _, reference in kept]


def _bleu(model: str, hypotheses: list[tuple[int, ...]], references: list[str]) -> float:
    texts = Subwords.read(Path(model) / TARGET_TOKENIZER).decode(hypotheses)
    return float(need("sacrebleu.metrics").BLEU().corpus_score(texts, [references]).score)
