"""Measure how many words of a trained model stay the same with each rung of the ladder (SHARP-09, SHARP-10, XP-03)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from operator import eq
from pathlib import Path

from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.sharp_speeds import Activations, rung_settings
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

Progress = Callable[[int, int, str], None]
"""Called with the number of finished parts, the number of parts, and the name of the next part."""


@dataclass(frozen=True, slots=True)
class RungAgreement:
    """One rung compared with the baseline on the same sentences."""

    key: str
    """Key of the rung."""
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


def sharp_agreement(
    model: str,
    text: Path,
    beam: int,
    sentences: int = SENTENCES,
    progress: Progress | None = None,
    *,
    references: Path | None = None,
) -> list[RungAgreement]:
    """Translate the first `sentences` of a text, one per line, by each rung with the whole vocabulary.

    `model`: folder of a trained attentional model; `references`: a translation of each line, for BLEU. Raises
    `CalibrationError` for another model, for a text without a sentence and for references with another number of lines, and the
    errors of reading.
    """
    trained = trained_model(model)
    sources, reference_lines = encoded_text(model, text, references, sentences)
    bleu = None if references is None else _bleu(Path(model), reference_lines)
    methods: tuple[Activations, ...] = ("table", "polynomial")
    ladder = {method: rung_settings(beam, None, method) for method in methods}
    # All exact techniques and no other: on the ladder they come after the 16-bit product.
    plain = ladder["table"]["baseline"]
    exact = plain.model_copy(update={"embeddings": "frequent", "attention": "precomputed", "merge": True})
    rungs = {plain: "baseline", exact: IDENTITIES} | {
        settings: key for by_key in ladder.values() for key, settings in by_key.items()
    }
    baseline = _Rung(trained, plain, sources)
    agreements = []
    for done, (settings, key) in enumerate(rungs.items()):
        if progress is not None:
            progress(done, len(rungs), f"what rungs change: {key}")
        rung = baseline if settings == baseline.settings else _Rung(trained, settings, sources)
        agreements.append(rung.compare(baseline, key, bleu))
    return agreements


def trained_model(model: str) -> AttentionalModel:
    """Return the attentional model of a folder. Raises `CalibrationError` for another model or one with random weights."""
    loaded = load_model(model)
    if not isinstance(loaded.model, AttentionalModel) or loaded.weights != "checkpoint":
        raise CalibrationError(f"{model} is no trained attentional model", remedy="train one: simnmt nmt train --model sharp")
    return loaded.model


def encoded_text(
    model: str, text: Path, references: Path | None = None, sentences: int = SENTENCES
) -> tuple[list[list[int]], list[str]]:
    """Return the first `sentences` of a text as tokens of a model's folder, without long ones, and their references."""
    pairs = list(islice(((line, reference) for line, reference in _lines(text, references) if line.strip()), sentences))
    encoded = Subwords.read(Path(model) / SOURCE_TOKENIZER).encode(line for line, _ in pairs)
    kept = [(source, reference) for source, (_, reference) in zip(encoded, pairs, strict=True) if len(source) <= MOST_TOKENS]
    if not kept:
        raise CalibrationError(
            f"no sentence of at most {MOST_TOKENS} tokens", path=text, remedy="give a text, one sentence a line"
        )
    return [source for source, _ in kept], [reference for _, reference in kept]


def _lines(text: Path, references: Path | None) -> Iterator[tuple[str, str]]:
    """Yield each line with its reference, which is empty without references."""
    lines = TextLines(text, kept="head", pipes=False)
    if references is None:
        yield from ((line, "") for line in lines)
        return
    for line, reference in zip_longest(lines, TextLines(references, kept="head", pipes=False)):
        if line is None or reference is None:
            raise CalibrationError(
                f"not as many lines as {text}", path=references, remedy="give one reference a line, in the order of the text"
            )
        yield line, reference


@dataclass(frozen=True, slots=True)
class NoiseAgreement:
    """Agreement of decoders that round with the exact decoder, on the same sentences."""

    share: Mapping[DecoderSettings, float]
    """Share of words of the exact decoder's translations that are also the likeliest here, teacher-forced."""
    tokens: int
    """Tokens of these translations, with end tokens."""
    sentences: int


def noise_agreement(
    model: str, text: Path, variants: Iterable[DecoderSettings], beam: int, sentences: int = SENTENCES
) -> NoiseAgreement:
    """Return the agreement of variants with the exact decoder of this beam, all with the whole vocabulary (SHARP-10).

    Only rounding counts: variants that differ by identities, beam or candidates share an agreement. Raises the errors of
    `sharp_agreement`.
    """
    trained = trained_model(model)
    sources, _ = encoded_text(model, text, sentences=sentences)
    exact = DecoderSettings(beam=beam, gemm="float32")
    baseline = _Rung(trained, exact, sources)
    hypotheses = [translation.tokens for translation in baseline.translations]
    share_by_rounding: dict[tuple[object, ...], float] = {}
    shares, tokens = dict[DecoderSettings, float](), sum(len(hypothesis) + 1 for hypothesis in hypotheses)
    for variant in variants:
        rounding = {option: getattr(variant, option) for option in variant.noise}
        key = tuple(rounding.items())
        if key not in share_by_rounding:
            other = _translator(trained, exact.model_copy(update=rounding))
            same, _ = same_words(baseline.translator, other, sources, hypotheses, trained.eos_token)
            share_by_rounding[key] = same / tokens
        shares[variant] = share_by_rounding[key]
    return NoiseAgreement(shares, tokens, len(hypotheses))


def same_words(
    exact: SharpTranslator,
    other: SharpTranslator,
    sources: Sequence[Sequence[int]],
    hypotheses: Sequence[Sequence[int]],
    eos: int,
) -> tuple[int, int]:
    """Count the steps along translations with the same likeliest word, and all steps, with end tokens (SHARP-10).

    Each translator encodes the sources with its own kernels, so that the noise of its source side counts.
    """
    same = total = 0
    for source, tokens in zip(sources, hypotheses, strict=True):
        one, another = (
            translator.forced(translator.encode(source), [*tokens, eos]).best.tolist() for translator in (exact, other)
        )
        same, total = same + sum(map(eq, one, another)), total + len(one)
    return same, total


def _translator(model: AttentionalModel, settings: DecoderSettings) -> SharpTranslator:
    return SharpTranslator([model], settings, max_len=2 * MOST_TOKENS, most_src_len=MOST_TOKENS)


def _bleu(folder: Path, references: list[str]) -> Callable[[Sequence[Sequence[int]]], float]:
    """Return a function that scores translations in the order of the references."""
    target, metric = Subwords.read(folder / TARGET_TOKENIZER), need("sacrebleu.metrics").BLEU()

    def score(hypotheses: Sequence[Sequence[int]]) -> float:
        texts = target.decode([list(tokens) for tokens in hypotheses])
        return float(metric.corpus_score(texts, [references]).score)

    return score


class _Rung:
    """One rung's translations."""

    def __init__(self, model: AttentionalModel, settings: DecoderSettings, sources: Sequence[Sequence[int]]) -> None:
        self.settings, self._eos, self._sources = settings, model.eos_token, sources
        self.translator = _translator(model, settings)
        self.translations = self.translator.translate(sources)

    def compare(self, baseline: _Rung, key: str, bleu: Callable[[Sequence[Sequence[int]]], float] | None) -> RungAgreement:
        """Return the agreement of this rung with `baseline`."""
        hypotheses = [translation.tokens for translation in baseline.translations]
        same, tokens = same_words(baseline.translator, self.translator, self._sources, hypotheses, self._eos)
        words, count = [translation.tokens for translation in self.translations], len(self.translations)
        return RungAgreement(
            key=key,
            settings=self.settings,
            tokens=tokens,
            tokens_same=same,
            sentences=count,
            sentences_same=sum(map(eq, words, hypotheses)),
            distinct_share=sum(translation.distinct_share for translation in self.translations) / count,
            bleu=None if bleu is None else bleu(words),
            clipping=self.translator.clipping(),
        )
