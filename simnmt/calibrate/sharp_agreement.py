"""Measure how many words of a trained model stay the same with each rung of the ladder (SHARP-09, SHARP-10, XP-03)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.sharp_speeds import Progress, rung_settings
from simnmt.kernels.beam_search import Ints
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
        return self.tokens_same / self.tokens


def sharp_agreement(
    model: str, text: Path, beam: int, progress: Progress | None = None, *, references: Path | None = None
) -> list[RungAgreement]:
    """Compare each rung with the baseline; see `agreements`."""
    exact = DecoderSettings(beam=beam, gemm="float32")
    # All exact techniques and no other: on the ladder they come after the 16-bit product.
    identities = exact.model_copy(update={"embeddings": "frequent", "attention": "precomputed", "merge": True})
    rungs = {exact: "baseline", identities: IDENTITIES}
    for activations in ("table", "polynomial"):
        rungs |= {settings: key for key, settings in rung_settings(beam, None, activations).items()}
    return agreements(model, text, rungs, beam, progress, references)


def noise_agreement(
    model: str, text: Path, variants: Iterable[DecoderSettings], beam: int
) -> dict[DecoderSettings, RungAgreement]:
    """Compare variants by their rounding alone (SHARP-10): those that differ by identities, beam or candidates share one."""
    exact = DecoderSettings(beam=beam, gemm="float32")
    rounded = {
        variant: exact.model_copy(update={option: getattr(variant, option) for option in variant.noise}) for variant in variants
    }
    compared = agreements(model, text, dict.fromkeys(rounded.values(), "rounding"), beam)
    by_settings = {agreement.settings: agreement for agreement in compared}
    return {variant: by_settings[settings] for variant, settings in rounded.items()}


def agreements(
    model: str,
    text: Path,
    rungs: Mapping[DecoderSettings, str],
    beam: int,
    progress: Progress | None = None,
    references: Path | None = None,
) -> list[RungAgreement]:
    """Compare decoders with the exact one of this beam on the first `SENTENCES` of a text, all with the whole vocabulary.

    Each decoder encodes the sources with its own kernels, so that the noise of its source side counts.

    Args:
        model: folder of a trained attentional model.
        text: one sentence per line.
        rungs: keys of the decoders by settings.
        beam: of the exact decoder.
        progress: called before each decoder.
        references: a translation of each line, for BLEU.

    Raises `CalibrationError` for another model, for a text without a sentence and for references with another number of lines,
    and the errors of reading.
    """
    loaded, (sources, expected) = load_model(model), encoded_text(model, text, references)
    attentional = loaded.model
    if not isinstance(attentional, AttentionalModel) or loaded.weights != "checkpoint":
        what = f"{model} is no trained attentional model"
        raise CalibrationError(what, remedy="train one: simnmt nmt train --model sharp")

    def translator(settings: DecoderSettings) -> SharpTranslator:
        return SharpTranslator([attentional], settings, max_len=2 * MOST_TOKENS)

    def likeliest(decoder: SharpTranslator) -> list[Ints]:
        """Return the likeliest words along the exact translations, end tokens included (teacher-forced)."""
        return [decoder.forced(decoder.encode(source), words).best for source, words in zip(sources, along, strict=True)]

    exact = translator(DecoderSettings(beam=beam, gemm="float32"))
    exact_words = [translation.tokens for translation in exact.translate(sources)]
    along = [[*words, attentional.eos_token] for words in exact_words]
    wanted, compared = np.concatenate(likeliest(exact)), []
    for done, (settings, key) in enumerate(rungs.items()):
        if progress is not None:
            progress(done, len(rungs), f"what rungs change: {key}")
        decoder = translator(settings)
        translations = decoder.translate(sources)
        words = [translation.tokens for translation in translations]
        rung = RungAgreement(
            key=key,
            settings=settings,
            tokens=len(wanted),
            tokens_same=int((np.concatenate(likeliest(decoder)) == wanted).sum()),
            sentences=len(words),
            sentences_same=sum(ours == theirs for ours, theirs in zip(words, exact_words, strict=True)),
            distinct_share=float(np.mean([translation.distinct_share for translation in translations])),
            bleu=None if references is None else _bleu(model, words, expected),
            clipping=decoder.clipping(),
        )
        compared.append(rung)
    return compared


def encoded_text(model: str, text: Path, references: Path | None = None) -> tuple[list[list[int]], list[str]]:
    """Return the first `SENTENCES` of a text as tokens of a model's folder, without long ones, and their references."""
    pairs = list[tuple[str, str]]()
    for line, reference in zip_longest(*(TextLines(file, kept=True, pipes=False) for file in (text, references or text))):
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
