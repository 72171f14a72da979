"""A text made of words by chance, with translations by a better and a worse system, and their files of scores."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simnmt.nmt.scoring import Output, load_metrics, score_outputs
from simnmt.workload.quality import write_scores

WORDS = ["the", "a", "cat", "dog", "house", "sees", "takes", "small", "green", "tree", "and", "of,", "water.", "runs", "letter"]
MISTAKES = {"small": 0.4, "big": 0.15}
"""Share of the words that each system translates wrongly."""


@dataclass(frozen=True)
class Text:
    sources: list[str]
    references: list[str]
    outputs: dict[str, list[str]]
    """By system."""

    def write(self, folder: Path, name: str = "text") -> dict[str, str]:
        """Write the text and a file of scores per system; return the keys of a workload's lengths."""
        for side, lines in (("fr", self.sources), ("en", self.references)):
            (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
        for system, texts in self.outputs.items():
            output = Output(system, texts, [len(text.split()) for text in texts], [-1.0] * len(texts))
            columns, facts = score_outputs(self.sources, self.references, [output], load_metrics())
            write_scores(folder / f"{system}.parquet", columns, facts)
        paths = {"source": str(folder / f"{name}.fr"), "target": str(folder / f"{name}.en")}
        return paths | {"src_unit": "word", "tgt_unit": "word"}


def made_text(sentences: int, seed: int = 1) -> Text:
    """Sentences of 1 to 25 words; many have the lengths of others, and some are empty on both sides."""
    draw = random.Random(seed)
    references = [" ".join(draw.choices(WORDS, k=draw.randint(1, 25))) for _ in range(sentences)]
    references[3] = references[40 % sentences] = ""
    sources = [
        " ".join([*(f"{word}e" for word in text.split()), str(at)]) if text else "" for at, text in enumerate(references)
    ]
    outputs = {
        system: [
            " ".join(draw.choice(WORDS) if draw.random() < share else word for word in text.split()) for text in references
        ]
        for system, share in MISTAKES.items()
    }
    return Text(sources, references, outputs)


def drawn_statistics(sentences: int, draw: np.random.Generator, skill: float = 0.8) -> np.ndarray:
    """Statistics as those of sentences with lengths and difficulties by chance, shape (sentences, 28)."""
    words = np.maximum(draw.lognormal(2.2, 0.6, sentences).astype(int), 1)
    output_words = np.maximum(words + draw.integers(-2, 3, sentences), 1)
    right = draw.beta(6.0 * skill, 6.0 * (1.0 - skill), sentences)
    columns = []
    for order in range(1, 7):
        reference, output = (np.maximum(5 * count - order + 1, 0) for count in (words, output_words))
        columns += [output, reference, draw.binomial(np.minimum(output, reference), right**order)]
    totals = [np.maximum(output_words - order, 0) for order in range(4)]
    correct = [draw.binomial(total, right ** (order + 1)) for order, total in enumerate(totals)]
    return np.stack([*columns, output_words, words, *correct, *totals], axis=1).astype(np.int32)
