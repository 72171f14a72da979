"""A language small enough to be learnt within seconds: numbers of up to four digits, spelt in two ways."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from simnmt.nmt.architecture import RecurrentArchitecture, TransformerArchitecture
from simnmt.nmt.subwords import Subwords, learn_vocabulary

ONE = ["nul", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf"]
OTHER = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

MARKS = {"pad": 0, "unk": 1, "start": 2, "eos": 3}
GRU = RecurrentArchitecture(kind="gru", layers=1, hidden=48, embedding=32, src_vocab=30, tgt_vocab=28)
TRANSFORMER = TransformerArchitecture(
    kind="transformer", encoder_layers=1, decoder_layers=1, d_model=32, heads=2, ffn=64, vocab=36, max_positions=64
)


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Different numbers, spelt digit by digit."""
    numbers = random.Random(seed).sample(range(11_110), count)
    spelt = [str(number) for number in numbers]
    return [(" ".join(ONE[int(d)] for d in number), " ".join(OTHER[int(d)] for d in number)) for number in spelt]


def subwords(lines: Sequence[str], size: int) -> Subwords:
    """Subwords learnt from text, with the marks of `GRU` and `TRANSFORMER`."""
    return Subwords(learn_vocabulary(lines, size, side="whole", **MARKS))


def write(folder: Path, count: int, seed: int = 0) -> tuple[Path, Path]:
    """The two files of a corpus."""
    src, tgt = folder / "one.txt", folder / "other.txt"
    made = pairs(count, seed)
    src.write_text("".join(f"{one}\n" for one, _ in made), encoding="utf-8")
    tgt.write_text("".join(f"{other}\n" for _, other in made), encoding="utf-8")
    return src, tgt
