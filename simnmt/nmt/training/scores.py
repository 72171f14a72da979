"""BLEU and chrF of translations of text that the model has not seen, by sacrebleu, with its signatures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from simnmt.nmt.errors import need
from simnmt.nmt.training.corpus import Pair, text_of
from simnmt.nmt.translation import Translator

SAMPLES = 10
"""Translations kept for people to look at."""


def score(
    translator: Translator, heldout: Sequence[Pair], *, progress: Callable[[float], None] | None = None
) -> dict[str, Any]:
    """Translate the sources of `heldout` and compare with its targets; says how long that took.

    Chinese targets are split by character before their words are matched, as sacrebleu's `zh` does; the signature says so.
    """
    metrics = need("sacrebleu.metrics")
    sources, references = text_of(heldout, 0), text_of(heldout, 1)
    begun_s = time.perf_counter()
    found = []
    for translation in translator.stream(sources):
        found.append(translation)
        if progress is not None:
            progress(len(found) / len(sources))
    seconds = time.perf_counter() - begun_s
    texts = [translation.text for translation in found]
    bleu = metrics.BLEU(tokenize=_tokenizer(references))
    chrf = metrics.CHRF()
    return {
        "pairs": len(heldout),
        "bleu": bleu.corpus_score(texts, [references]).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(texts, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
        "beam": translator.beam,
        "seconds": seconds,
        "sentences_per_s": len(texts) / seconds,
        "unfinished": sum(not translation.ended for translation in found),
        "samples": [
            {"source": src, "reference": ref, "translation": text}
            for src, ref, text in list(zip(sources, references, texts, strict=True))[:SAMPLES]
        ],
    }


def _tokenizer(texts: Sequence[str]) -> str:
    letters = [char for text in texts[:1000] for char in text if char.isalpha()]
    han = sum("\u4e00" <= char <= "\u9fff" for char in letters)
    return "zh" if han > len(letters) / 2 else "13a"
