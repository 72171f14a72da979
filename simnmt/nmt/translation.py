"""Translate lines of text, in order, by any step model with its source and target vocabularies."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

import torch

from simnmt.batching import Batching
from simnmt.nmt.checkpoint import SOURCE_TOKENIZER, TARGET_TOKENIZER
from simnmt.nmt.devices import torch_device
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.searches import make_search
from simnmt.nmt.slot_decoder import BatchedDecoder, DecodeRequest, SlotDecoder, parse_batching
from simnmt.nmt.step_model import Hypothesis, StepModel
from simnmt.nmt.subwords import LONGEST_SOURCE, UNKNOWN, Subwords, TextWriter, read_dictionary
from simnmt.nmt.vocabulary.alignment import attended_positions, can_attend
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary
from simnmt.workload.text_lines import TextLines


def read_lines(file: Path | None) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or gzip, or of standard input where None; without their line ends.

    Raises `CorpusError` for what cannot be read, is no UTF-8 text, or is larger than `TextLines` reads.
    """
    if file is not None:
        return iter(TextLines(file))
    # A stream and not a path: a terminal is a device, and those are refused by their path.
    return iter(TextLines("standard input", stream=cast(io.BufferedReader, sys.stdin.buffer)))


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
    """Log-probability over length, natural; None for an empty line."""
    cut: bool
    """Whether the source was longer than the model takes, so that only its beginning was translated."""
    ended: bool
    """Whether the model ended the sentence itself, not the limit on its length."""
    steps: int
    """Decode steps taken: greedily one for each token written and one for the end mark; a beam runs on beyond its best."""
    replaced: int = 0
    """Unknown tokens replaced through the attention."""
    unknown: int = 0
    """Unknown tokens that stay, as `⁇` in the text."""

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
        fused: bool = False,
        vocabulary: RestrictedVocabulary | None = None,
        batching: Batching | None = None,
        max_len: int | None = None,
        dictionary: Mapping[str, str] | None = None,
        keep_unknown: bool = False,
    ) -> None:
        """`fused`: the output layer is; `batching`: by default `parse_batching()`.

        `vocabulary`: the output layer takes these columns alone, see `SlotDecoder`; not beside `fused`, which it is of itself.
        `max_len`: most tokens written, by default twice the source's and 10. `dictionary`: translations of unknown words, which
        are copied otherwise; `keep_unknown`: the mark of an unknown word is written instead. A model without attention keeps it
        in any case, so that a dictionary for it is refused.

        Raises `NmtError` for options out of range or that cannot go together.
        """
        for name, value in (("beam", beam), ("max_len", 1 if max_len is None else max_len)):
            if value < 1:
                raise NmtError(f"{name} is {value}", remedy="give 1 or more")
        if beam > model.vocab - 1:
            raise NmtError(f"a beam of {beam:,} with a vocabulary of {model.vocab:,}", remedy="give a smaller one")
        self.model, self.source, self.target = model, source, target
        if vocabulary is not None:
            vocabulary.check(model)
            if fused:
                what = "the fused output layer beside a part of the vocabulary, whose search is fused of itself"
                raise NmtError(what, remedy="leave --fused out")
        self.beam, self.fused, self.batching, self.max_len = beam, fused, batching or parse_batching(), max_len
        self.vocabulary = vocabulary
        if dictionary is not None and not can_attend(model):
            what = "a dictionary of unknown words for a model without attention"
            raise NmtError(what, remedy="leave the dictionary out, or give a model with attention")
        self.writer = TextWriter(source, target, model.unk_token, dictionary or {}, keep_unknown)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "cpu",
        threads: int | None = None,
        beam: int = 1,
        fused: bool = False,
        vocabulary: Path | None = None,
        direction: str | None = None,
        cache_mb: float = 0.0,
        tune: bool = False,
        batching: Batching | None = None,
        max_len: int | None = None,
        dictionary: Path | None = None,
        keep_unknown: bool = False,
    ) -> Translator:
        """From a folder that `simnmt nmt train` wrote; raises `NmtError` for another. `threads`: torch's, from here on.

        `vocabulary`: a bundle that `simnmt vocab build` made of this model; with `direction` and `cache_mb` see
        `load_vocabulary`. `tune`: its products are made as measuring them here and now says is fastest, as copies need it
        (`cache_mb`); otherwise by the number of rows, the same at each run.
        """
        where = torch_device(device)
        if threads is not None:
            torch.set_num_threads(threads)
        loaded, source, target = load_folder(folder)
        model = loaded.model.to(where)
        return cls(
            model,
            source,
            target,
            beam=beam,
            fused=fused,
            vocabulary=_load_restriction(vocabulary, model, direction, cache_mb, tune),
            batching=batching,
            max_len=max_len,
            dictionary=None if dictionary is None else read_dictionary(dictionary),
            keep_unknown=keep_unknown,
        )

    def stream(self, lines: Iterable[str]) -> Iterator[Translation]:
        """One translation per line, in order, as they come: reads a batch, or a collection, when the batcher is out of lines.

        Raises `OutOfMemory` where a batch does not fit.
        """
        return _TranslationStream(self, iter(lines)).translations()

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """One translation per line, in order."""
        return list(self.stream(lines))


def load_folder(folder: Path) -> tuple[LoadedModel, Subwords, Subwords]:
    """A model that `simnmt nmt train` wrote, with its source and target subwords; raises `NmtError` for another folder."""
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        if not (folder / name).is_file():
            what = f"no trained model: {name} is missing" if folder.is_dir() else "no such folder"
            raise NmtError(what, path=folder, remedy="give the --out of simnmt nmt train")
    source, target = (Subwords.read(folder / name) for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER))
    loaded = load_model(str(folder.absolute()))  # a folder may have the name of an architecture, such as gru
    sizes = loaded.architecture.src_vocab, loaded.architecture.tgt_vocab
    if (source.size, target.size) != sizes:
        what = f"subwords for {source.size:,} and {target.size:,} tokens, but a model of {sizes[0]:,} and {sizes[1]:,}"
        raise NmtError(what, path=folder, remedy="copy the folder again, all its files together")
    return loaded, source, target


def _load_restriction(
    path: Path | None, model: StepModel, direction: str | None, cache_mb: float, tune: bool
) -> RestrictedVocabulary | None:
    if path is None:
        for name, given in (("direction", direction), ("cache", cache_mb), ("measurement", tune)):
            if given:
                raise NmtError(f"a {name} without a bundle of the vocabulary", remedy="name the bundle with --vocabulary")
        return None
    from simnmt.nmt.vocabulary.active_columns import load_vocabulary, with_measured_cost

    part = load_vocabulary(path, model, direction=direction, cache_mb=cache_mb)
    return with_measured_cost(part, model) if tune or cache_mb else part


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    ids: list[int]
    cut: bool
    most: int
    """Tokens that may be written."""


class _TranslationStream:
    """Lines on their way through one decoder; they leave in the order in which they came."""

    def __init__(self, translator: Translator, lines: Iterator[str]) -> None:
        model, self._translator, self._lines = translator.model, translator, lines
        self._batching, vocabulary = translator.batching, translator.vocabulary
        search = partial(make_search, model, translator.beam, scored=True, fused=translator.fused, vocabulary=vocabulary)
        decoder = SlotDecoder(model, capacity=self._batching.size, vocabulary=vocabulary, search=search)
        self._batched = BatchedDecoder(decoder, self._batching)
        self._under_way: dict[int, _Line] = {}
        self._done: dict[int, Translation] = {}
        self._read = self._written = 0
        self._waits = self._ended = False

    def translations(self) -> Iterator[Translation]:
        """Yield all translations, in the order of the lines."""
        while self._batched.busy or not self._ended:
            if self._wants_lines():
                self._read_on()
            before = self._batched.decoder.active
            move, finished = self._batched.act()
            self._waits = move is None and not before
            for line, hypothesis in finished:
                self._done[line] = self._translation(self._under_way.pop(line), hypothesis)
            while self._written in self._done:
                yield self._done.pop(self._written)
                self._written += 1

    def _wants_lines(self) -> bool:
        """Whether the batcher waits for more, or may soon want more than it has."""
        batched, batching = self._batched, self._batching
        few = batched.decoder.active <= batching.threshold and batched.batcher.waiting < batching.size
        return not self._ended and (few or self._waits)

    def _read_on(self) -> None:
        wanted = self._batching.collected or self._batching.size
        block = list(islice(self._lines, wanted))
        for line, (text, ids) in enumerate(zip(block, self._translator.source.encode(block), strict=True), self._read):
            self._arrive(line, text, ids)
        self._read += len(block)
        if len(block) < wanted:
            self._ended = True
            self._batched.batcher.close()

    def _arrive(self, line: int, text: str, ids: list[int]) -> None:
        if len(ids) <= 1:
            self._done[line] = Translation("", 0, 0, None, False, True, 0)
            return
        positions = self._translator.model.max_positions
        limit = positions or LONGEST_SOURCE
        kept = ids if len(ids) <= limit else [*ids[: limit - 1], self._translator.source.eos]
        most = self._translator.max_len or 2 * len(kept) + 10
        self._under_way[line] = _Line(text, kept, len(ids) > limit, most if positions is None else min(most, positions))
        self._batched.arrive(line, DecodeRequest(kept, max_len=self._under_way[line].most))

    def _translation(self, line: _Line, hypothesis: Hypothesis) -> Translation:
        model, length = self._translator.model, len(hypothesis.tokens)
        attended = partial(attended_positions, model, line.ids, hypothesis.tokens) if can_attend(model) else None
        written = self._translator.writer.write(line.text, len(line.ids), hypothesis.tokens, attended)
        return Translation(
            written.text,
            len(line.ids),
            length,
            hypothesis.score,
            line.cut,
            length < line.most,
            hypothesis.steps,
            written.replaced,
            written.unknown,
        )


def report_problems(
    translations: Iterable[Translation],
    note: Callable[[str], None],
    why_unknown: str | None = None,
) -> Iterator[Translation]:
    """Yield the same translations; `note` gets the lines that were too long, and how many did not end.

    It also gets how many unknown words stay, and why; not where `why_unknown` is None.
    """
    cut = unfinished = unknown = 0
    for number, translation in enumerate(translations, 1):
        if translation.cut:
            cut += 1
            if cut <= NOTES:
                note(f"line {number} is too long: only its first {translation.src_len:,} tokens are translated")
        unfinished += not translation.ended
        unknown += translation.unknown
        yield translation
    if cut > NOTES:
        note(f"{cut:,} lines in all were too long")
    if unfinished:
        note(f"{unfinished:,} translations were stopped at their greatest length")
    if unknown and why_unknown is not None:
        note(f"unknown words written as {UNKNOWN}: {unknown:,}, for {why_unknown}")
