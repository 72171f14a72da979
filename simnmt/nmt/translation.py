"""Lines of text in, their translations out in the same order, by any step model with its two vocabularies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch

from simnmt.nmt.checkpoint import SOURCE_TOKENIZER, TARGET_TOKENIZER
from simnmt.nmt.devices import torch_device
from simnmt.nmt.errors import NmtError
from simnmt.nmt.hypothesis import Hypothesis
from simnmt.nmt.memory import within_memory
from simnmt.nmt.models import load_model
from simnmt.nmt.search import beam as beam_search
from simnmt.nmt.search import greedy
from simnmt.nmt.source_batch import pad
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.subwords import Subwords

BLOCK_BATCHES = 8
"""Batches that are read ahead, so that sentences of like length meet in one."""
LONGEST_SOURCE = 512
"""Tokens of a source, where the model itself takes any length; what comes after is not translated."""
NOTES = 5
"""Lines too long that are named each; of more the number is told."""


@dataclass(frozen=True, slots=True)
class Translation:
    """One line's translation; empty for an empty line."""

    text: str
    src_len: int
    """Tokens read, the end mark included; 0 for an empty line."""
    tgt_len: int
    """Tokens written, without the end mark."""
    score: float | None
    """Log-probability over length, natural; None where the search keeps none, as greedy search does, and for an empty line."""
    cut: bool
    """Whether the source was longer than the model takes, so that only its beginning was translated."""
    ended: bool
    """Whether the model ended the sentence itself, not the limit on its length."""

    def as_json(self) -> str:
        """Every field, as an object on one line."""
        return json.dumps(asdict(self), ensure_ascii=False)


class Translator:
    """A model with its vocabularies, ready to translate; evaluation mode, no gradients."""

    def __init__(
        self,
        model: StepModel,
        source: Subwords,
        target: Subwords,
        *,
        beam: int = 1,
        batch: int = 64,
        max_len: int | None = None,
    ) -> None:
        """`batch`: sentences translated together; `max_len`: most tokens written, by default twice the source's and 10."""
        for name, value in (("beam", beam), ("batch", batch), ("max_len", 1 if max_len is None else max_len)):
            if value < 1:
                raise NmtError(f"{name} is {value}", remedy="give 1 or more")
        if beam > model.vocab - 1:
            raise NmtError(f"a beam of {beam:,} with a vocabulary of {model.vocab:,}", remedy="give a smaller one")
        self.model, self.source, self.target = model, source, target
        self.beam, self.batch, self.max_len = beam, batch, max_len

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "cpu",
        threads: int | None = None,
        beam: int = 1,
        batch: int = 64,
        max_len: int | None = None,
    ) -> Translator:
        """From a folder that `simnmt nmt train` wrote; raises `NmtError` for another. `threads`: torch's, from here on."""
        for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
            if not (folder / name).is_file():
                what = f"no trained model: {name} is missing" if folder.is_dir() else "no such folder"
                raise NmtError(what, path=folder, remedy="give the --out of simnmt nmt train")
        where = torch_device(device)
        if threads is not None:
            torch.set_num_threads(threads)
        source, target = (Subwords.read(folder / name) for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER))
        loaded = load_model(str(folder))
        sizes = loaded.architecture.src_vocab, loaded.architecture.tgt_vocab
        if (source.size, target.size) != sizes:
            what = f"subwords for {source.size:,} and {target.size:,} tokens, but a model of {sizes[0]:,} and {sizes[1]:,}"
            raise NmtError(what, path=folder, remedy="copy the folder again, all its files together")
        model = loaded.model
        return cls(model.to(where), source, target, beam=beam, batch=batch, max_len=max_len)

    def stream(self, lines: Iterable[str]) -> Iterator[Translation]:
        """One translation per line, in order, a block after the other; never holds more than a block."""
        waiting = iter(lines)
        while block := list(islice(waiting, self.batch * BLOCK_BATCHES)):
            yield from self.translate(block)

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """One translation per line, in order."""
        limit = self.model.max_positions or LONGEST_SOURCE
        sources = self.source.encode(lines)
        done = [Translation("", 0, 0, None, False, True)] * len(lines)
        # Longest first: memory that will not do is told at once.
        order = sorted((row for row, ids in enumerate(sources) if len(ids) > 1), key=lambda row: -len(sources[row]))
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            cut = [len(sources[row]) > limit for row in rows]
            kept = [self._shortened(sources[row], limit) for row in rows]
            for row, was_cut, ids, (tokens, score, ended) in zip(rows, cut, kept, self._search(kept), strict=True):
                text = self.target.decode([tokens])[0]
                done[row] = Translation(text, len(ids), len(tokens), score, was_cut, ended)
        return done

    def _shortened(self, ids: list[int], limit: int) -> list[int]:
        return ids if len(ids) <= limit else [*ids[: limit - 1], self.source.eos]

    def _search(self, sources: list[list[int]]) -> list[tuple[tuple[int, ...], float | None, bool]]:
        most = self.max_len or 2 * max(map(len, sources)) + 10
        if self.model.max_positions is not None:
            most = min(most, self.model.max_positions)
        src, lengths = (tensor.to(self.model.device) for tensor in pad(sources, self.model.pad_token))

        @torch.inference_mode()
        def search() -> list[Hypothesis]:
            if self.beam == 1:
                return greedy(self.model, src, lengths, max_len=most)
            return beam_search(self.model, src, lengths, beam=self.beam, max_len=most)

        found = within_memory(str(self.model.device), search)
        return [(hypothesis.tokens, hypothesis.score, len(hypothesis.tokens) < most) for hypothesis in found]


def noting(translations: Iterable[Translation], note: Callable[[str], None]) -> Iterator[Translation]:
    """The same translations; `note` is told of the lines that were too long, and how many did not end."""
    cut = unfinished = 0
    for number, translation in enumerate(translations, 1):
        if translation.cut:
            cut += 1
            if cut <= NOTES:
                note(f"line {number} is too long: only its first {translation.src_len:,} tokens are translated")
        unfinished += not translation.ended
        yield translation
    if cut > NOTES:
        note(f"{cut:,} lines in all were too long")
    if unfinished:
        note(f"{unfinished:,} translations were stopped at their greatest length")
