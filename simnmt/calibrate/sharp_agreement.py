"""How many words a trained model still says with each rung of the ladder (SHARP-09, SHARP-10, XP-03)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.sharp_products import Activations
from simnmt.calibrate.sharp_speeds import rung_settings
from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.nmt.checkpoint import SOURCE_TOKENIZER
from simnmt.nmt.models import load_model
from simnmt.nmt.sharp_model import AttentionalModel
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.subwords import Subwords
from simnmt.workload.text_lines import TextLines

SENTENCES = 200
IDENTITIES = "identities"
"""Embeddings, attention and merged states without the others."""
MOST_TOKENS = 60
"""Of a source; longer ones are left out."""

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One rung beside the baseline, on the same sentences."""

    key: str
    """Of the rung."""
    settings: DecoderSettings
    tokens: int
    """Of the baseline's translations, end tokens included."""
    tokens_same: int
    """Of these, where the likeliest word along the baseline's translation is the baseline's (teacher-forced)."""
    sentences: int
    sentences_same: int
    """Translated by itself to the same words."""
    distinct_share: float
    """Of the hypotheses' states, mean over sentences (SHARP-09)."""

    @property
    def share(self) -> float:
        """Of tokens that are the same."""
        return self.tokens_same / self.tokens


def sharp_agreement(
    model: str, text: Path, beam: int, sentences: int = SENTENCES, progress: Progress | None = None
) -> list[Agreement]:
    """Translate the first so many sentences of a text, one a line, by each rung, with the whole vocabulary.

    `model`: a folder with a trained attentional model. Raises `CalibrationError` for another model and for a text without a
    sentence, and what reading raises.
    """
    loaded = load_model(model)
    if not isinstance(loaded.model, AttentionalModel) or loaded.weights != "checkpoint":
        raise CalibrationError(f"{model} is no trained attentional model", remedy="train one: simnmt nmt train --model sharp")
    lines = (line for line in TextLines(text) if line.strip())
    encoded = Subwords.read(Path(model) / SOURCE_TOKENIZER).encode(islice(lines, sentences))
    sources = [source for source in encoded if len(source) <= MOST_TOKENS]
    if not sources:
        raise CalibrationError(
            f"no sentence of at most {MOST_TOKENS} tokens", path=text, remedy="give a text, one sentence a line"
        )
    ways: tuple[Activations, ...] = ("table", "polynomial")
    ladder = {way: rung_settings(beam, None, way) for way in ways}
    # All that is exact and nothing else: on the ladder it comes after the 16-bit product.
    plain = ladder["table"]["baseline"]
    exact = plain.model_copy(update={"embeddings": "frequent", "attention": "precomputed", "merge": True})
    rungs = {plain: "baseline", exact: IDENTITIES} | {own: key for each in ladder.values() for key, own in each.items()}
    baseline = _Rung(loaded.model, plain, sources)
    found = []
    for done, (settings, key) in enumerate(rungs.items()):
        if progress is not None:
            progress(done, len(rungs))
        own = baseline if settings == baseline.settings else _Rung(loaded.model, settings, sources)
        found.append(own.beside(baseline, key))
    return found


class _Rung:
    """One rung's translations."""

    def __init__(self, model: AttentionalModel, settings: DecoderSettings, sources: Sequence[Sequence[int]]) -> None:
        self.settings, self._eos = settings, model.eos_token
        self._translator = SharpTranslator([model], settings, max_len=2 * MOST_TOKENS, most_src_len=MOST_TOKENS)
        self._states = [self._translator.encode(source) for source in sources]
        self.translations = [self._translator.decode(states) for states in self._states]

    def likeliest(self, others: _Rung) -> list[list[int]]:
        """Along each translation of another rung, its end token included, the likeliest word of each step."""
        return [
            self._translator.forced(states, [*each.tokens, self._eos]).best.tolist()
            for states, each in zip(self._states, others.translations, strict=True)
        ]

    def beside(self, baseline: _Rung, key: str) -> Agreement:
        """Counted against the baseline's."""
        pairs = [
            (ours, theirs)
            for own, other in zip(self.likeliest(baseline), baseline.likeliest(baseline), strict=True)
            for ours, theirs in zip(own, other, strict=True)
        ]
        both = list(zip(self.translations, baseline.translations, strict=True))
        return Agreement(
            key,
            self.settings,
            len(pairs),
            sum(ours == theirs for ours, theirs in pairs),
            len(both),
            sum(own.tokens == other.tokens for own, other in both),
            sum(own.distinct_share for own, _ in both) / len(both),
        )
