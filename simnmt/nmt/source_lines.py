"""Lines of text to translate, as source tokens with the limit of their outputs, and their translations; needs no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from simnmt.nmt.errors import NmtError
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, SourceEncoder, Subwords, TextWriter, cut_sources


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one line; empty for an empty line."""

    text: str = ""
    src_len: int = 0
    """Source tokens, the end mark included; 0 for an empty line."""
    tgt_len: int = 0
    """Target tokens, without the end mark."""
    score: float | None = None
    """Natural log-probability divided by the length; None for an empty line."""
    cut: bool = False
    """Whether the source was longer than the model takes, so that only its beginning was translated."""
    ended: bool = True
    """Whether the model ended the sentence, not the limit on its length."""
    steps: int = 0
    """Decode steps taken: greedy search takes one per token and one for the end mark; a beam runs on beyond its best."""
    replaced: int = 0
    """Unknown tokens replaced by means of the attention."""
    unknown: int = 0
    """Unknown tokens that stay, as `⁇` in the text."""

    def as_json(self) -> str:
        """Return every field, as a JSON object on one line."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line to translate."""

    text: str
    ids: list[int]
    """Tokens, the end mark last, cut to what the model takes; none for an empty line."""
    cut: bool
    """Whether `ids` is only the beginning of the line."""
    most: int
    """Most target tokens."""

    @classmethod
    def encode(
        cls, texts: Sequence[str], subwords: SourceEncoder, max_len: int | None, positions: int | None
    ) -> list[SourceLine]:
        """Encode lines of text; `max_len`, `positions`: see `target_limit`."""
        whole = subwords.encode(texts)
        sources = zip(texts, whole, cut_sources(whole, subwords.eos, positions), strict=True)
        return [
            cls(text, ids, len(whole_ids) > len(ids) > 0, target_limit(len(ids), max_len, positions))
            for text, whole_ids, ids in sources
        ]

    def translation(
        self,
        writer: TextWriter,
        tokens: Sequence[int],
        attended: Callable[[], Sequence[int]] | None,
        score: float | None,
        steps: int,
    ) -> Translation:
        """Return the translation with these target tokens, without the end mark; `attended`: see `TextWriter.write`."""
        src_len, ended = len(self.ids), len(tokens) < self.most
        written = writer.write(self.text, src_len, tokens, attended)
        counts = written.replaced, written.unknown
        return Translation(written.text, src_len, len(tokens), score, self.cut, ended, steps, *counts)


def target_limit(src_len: int, max_len: int | None, positions: int | None) -> int:
    """Return the most target tokens: `max_len`, by default twice the source's and 10, but not more than `positions`."""
    most = max_len or 2 * src_len + 10
    return most if positions is None else min(most, positions)


def load_subwords(folder: Path) -> tuple[Subwords, Subwords]:
    """Load the source and target subwords of a trained model; raises `NmtError` for another folder."""
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        if not (folder / name).is_file():
            what = f"no trained model: {name} is missing" if folder.is_dir() else "no such folder"
            raise NmtError(what, path=folder, remedy="give the --out of simnmt nmt train, or a folder or id of Hugging Face")
    return Subwords.read(folder / SOURCE_TOKENIZER), Subwords.read(folder / TARGET_TOKENIZER)
