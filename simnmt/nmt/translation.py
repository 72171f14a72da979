"""Translate lines of text, in order: by any step model with its tokenisers, or by the sharp decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from simnmt.base.configuration import message_of
from simnmt.batching import Batching
from simnmt.batching.configuration import MOST, BatchingConfiguration
from simnmt.nmt.decoder import Decoder
from simnmt.nmt.devices import torch_device
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.output_layer import Output
from simnmt.nmt.pretrained_tokenizer import Languages, is_pretrained, load_pretrained
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import DecodeRequest, Hypothesis, SentenceDecoder
from simnmt.nmt.source_lines import LineCoder, SourceLine, Translation, load_subwords
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.subwords import UNKNOWN, Subwords, Tokeniser
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary
from simnmt.workload.text_lines import TextLines


def read_lines(file: Path | None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or gzip, or of standard input for None, without their line ends.

    Raises `CorpusError` for a file that cannot be read, is not UTF-8, or is larger than `TextLines` reads.
    """
    if file is not None:
        return iter(TextLines(file))
    return iter(TextLines(Path("-")))


def parse_batching(kind: str = "maxi", size: int = 64, *, threshold: str | None = None, collect: int | None = None) -> Batching:
    """Return the batching of lines that are all present, or are read as fast as needed.

    `kind`: mini, maxi or top-up. `threshold`, of top-up: half-empty (the default), immediate or a number of sentences.
    `collect`: lines that are sorted by length before they are cut into batches; by default ten batches for maxi (FNI-09), none
    for top-up. Raises `NmtError` for settings out of range or that contradict each other.
    """
    kind = kind.replace("-", "_")
    if kind not in ("mini", "maxi", "top_up"):
        raise NmtError(f"no batching {kind}", remedy="take mini, maxi or top-up")
    settings: dict[str, object] = {"kind": kind, "size": size}
    if kind != "top_up":
        settings["longest_wait_ms"] = None  # batches are full
    if threshold is not None:
        settings["threshold"] = int(threshold) if threshold.isdecimal() else threshold.replace("-", "_")
    if collect is not None or kind == "maxi":
        settings["collect"] = min(10 * size, MOST) if collect is None else collect
    try:
        batching: Batching = _BATCHINGS.validate_python(settings).batching
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        options = {"size": "--batch", "threshold": "--threshold", "collect": "--collect"}
        option = options.get(str(first["loc"][-1]) if first["loc"] else "", "--batching")
        raise NmtError(f"{option}: {message_of(first).replace('Input should', 'must')}") from None
    return batching


_BATCHINGS: TypeAdapter[Any] = TypeAdapter(BatchingConfiguration)

NOTES = 5
"""Most lines too long that are reported one by one; the rest is only counted."""


class TextTranslator(ABC):
    """A decoder with its tokenisers, which translates lines in their order."""

    @abstractmethod
    def coder(self) -> LineCoder:
        """Return the conversion of lines to source tokens, and of target tokens to text."""

    @abstractmethod
    def decoder(self) -> SentenceDecoder:
        """Return an empty decoder."""

    @abstractmethod
    def attended(self, line: SourceLine, hypothesis: Hypothesis) -> Callable[[], Sequence[int]] | None:
        """Return what returns the attended position of each token; see `LineCoder.translation`."""

    def stream(self, lines: Iterable[str]) -> Iterator[Translation]:
        """Yield a translation per line, in order; read a batch, or a collection, whenever the batcher has too few lines.

        Raises `OutOfMemory` for a batch that does not fit.
        """
        return _TranslationStream(self, iter(lines)).translations()

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """Return a translation per line, in order."""
        return list(self.stream(lines))


@dataclass(slots=True)
class Translator(TextTranslator):
    """A model with its subwords, ready to translate; the model must be in evaluation mode.

    Raises `NmtError` for options out of range or that contradict each other.
    """

    model: StepModel
    source: Tokeniser
    target: Tokeniser
    _: KW_ONLY
    beam: int = 1
    fused: bool = False
    """Whether the output layer is fused."""
    vocabulary: RestrictedVocabulary | None = None
    """The active columns of the output layer, see `SlotDecoder`; not with `fused`, since its search is fused anyway."""
    batching: Batching | None = None
    """How lines are batched; None: as `parse_batching` does by default."""
    max_len: int | None = None
    """Most tokens of a translation, by default twice the source's and 10."""
    keep_unknown: bool = False
    """Whether every unknown word is written as its mark, not replaced by means of the attention."""

    def __post_init__(self) -> None:
        check_search(self.beam, self.max_len, self.model.vocab)
        if self.vocabulary is not None and self.fused:
            what = "the fused output layer beside a part of the vocabulary, whose search is fused of itself"
            raise NmtError(what, remedy="leave --fused out")

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "cpu",
        threads: int | None = None,
        vocabulary: Path | None = None,
        direction: str | None = None,
        tune: bool = False,
        beam: int = 1,
        fused: bool = False,
        batching: Batching | None = None,
        max_len: int | None = None,
        languages: Languages = Languages(),  # noqa: B008 - frozen
    ) -> Translator:
        """Load a folder that `simnmt nmt train` wrote, or a folder or id of Hugging Face with its tokeniser.

        Args:
            folder: the folder, or the id.
            device: cpu, cuda or cuda:0.
            threads: threads of torch in this process from now on.
            vocabulary, direction: a bundle that `simnmt vocab build` made of this model, see `load_vocabulary`.
            tune: whether to choose the products of the bundle by measuring them now; otherwise the choice
                depends on the number of rows, which is the same at each run.
            languages: what the text is translated from and to, for models of Hugging Face that need it.
            beam, fused, batching, max_len: see the fields of `Translator`.

        Raises `NmtError` for another folder and for unusable options.
        """
        where = torch_device(device)
        if threads is not None:
            torch.set_num_threads(threads)
        source: Tokeniser
        target: Tokeniser
        if is_pretrained(folder):
            loaded, tokenizer = load_pretrained(folder, languages)
            source = target = tokenizer
        elif languages.given:
            what = "languages are for models of Hugging Face"
            raise NmtError(what, path=folder, remedy="leave --src-lang and --tgt-lang out")
        else:
            loaded, source, target = load_folder(folder)
        model = loaded.model.to(where)
        part = _load_restriction(vocabulary, model, direction, tune)
        return cls(
            model,
            source,
            target,
            beam=beam,
            fused=fused,
            vocabulary=part,
            batching=batching,
            max_len=max_len,
        )

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the tokens of each line, the end mark last, cut to what the model takes; none for an empty line."""
        return [line.ids for line in self.coder().lines(list(lines))]

    def coder(self) -> LineCoder:
        model = self.model
        return LineCoder(self.source, self.target, model.unk_token, model.max_positions, self.max_len, self.keep_unknown)

    def decoder(self) -> Decoder:
        output = Output(self.fused, self.vocabulary)
        return Decoder(self.model, self.batching or parse_batching(), Search(self.beam, scored=True), output)

    def attended(self, line: SourceLine, hypothesis: Hypothesis) -> Callable[[], Sequence[int]] | None:
        return (lambda: attended_positions(self.model, line.ids, hypothesis.tokens)) if self.model.attends else None


def check_search(beam: int, max_len: int | None, vocab: int) -> None:
    """Raise `NmtError` for a beam, or a most length, that no search of so many tokens can have."""
    for name, value in (("beam", beam), ("max_len", 1 if max_len is None else max_len)):
        if value < 1:
            raise NmtError(f"{name} is {value}", remedy="give 1 or more")
    if beam > vocab - 1:
        raise NmtError(f"a beam of {beam:,} with a vocabulary of {vocab:,}", remedy="give a smaller one")


def load_folder(folder: Path) -> tuple[LoadedModel, Subwords, Subwords]:
    """Load a model that `simnmt nmt train` wrote, and its source and target subwords; raises `NmtError` for another folder."""
    source, target = load_subwords(folder)
    loaded = load_model(str(folder.absolute()))  # a folder may have the name of an architecture, such as gru
    sizes = loaded.architecture.src_vocab, loaded.architecture.tgt_vocab
    if (source.size, target.size) != sizes:
        what = f"subwords for {source.size:,} and {target.size:,} tokens, but a model of {sizes[0]:,} and {sizes[1]:,}"
        raise NmtError(what, path=folder, remedy="copy the folder again, all its files together")
    return loaded, source, target


def _load_restriction(path: Path | None, model: StepModel, direction: str | None, tune: bool) -> RestrictedVocabulary | None:
    if path is None:
        for name, given in (("direction", direction), ("measurement", tune)):
            if given:
                raise NmtError(f"a {name} without a bundle of the vocabulary", remedy="name the bundle with --vocabulary")
        return None
    from simnmt.nmt.vocabulary.restricted_vocabulary import load_vocabulary, with_measured_cost

    part = load_vocabulary(path, model, direction=direction)
    return with_measured_cost(part, model) if tune else part


class _TranslationStream:
    """The lines in one decoder, which leave it in the order in which they came."""

    def __init__(self, translator: TextTranslator, lines: Iterator[str]) -> None:
        self._translator, self._lines = translator, lines
        self._coder, self._decoder = translator.coder(), translator.decoder()
        self._batching = self._decoder.batcher.batching
        self._in_work: dict[int, SourceLine] = {}
        self._done: dict[int, Translation] = {}
        self._read = self._written = 0
        self._waits = self._ended = False

    def translations(self) -> Iterator[Translation]:
        """Yield all translations, in the order of the lines."""
        while self._decoder.busy or not self._ended:
            if self._wants_lines():
                self._read_lines()
            before = self._decoder.active
            move, finished = self._decoder.act()
            self._waits = move is None and not before
            for number, hypothesis in finished:
                line = self._in_work.pop(number)
                attended = self._translator.attended(line, hypothesis)
                done = self._coder.translation(line, hypothesis.tokens, attended, hypothesis.score, hypothesis.steps)
                self._done[number] = done
            while self._written in self._done:
                yield self._done.pop(self._written)
                self._written += 1

    def _wants_lines(self) -> bool:
        """Return whether the batcher waits for lines, or may soon need more than it has."""
        decoder, batching = self._decoder, self._batching
        few = decoder.active <= batching.threshold and decoder.batcher.waiting < batching.size
        return not self._ended and (few or self._waits)

    def _read_lines(self) -> None:
        wanted = self._batching.collected or self._batching.size
        lines = self._coder.lines(list(islice(self._lines, wanted)))
        for number, line in enumerate(lines, self._read):
            if line.ids:
                self._in_work[number] = line
                self._decoder.arrive(number, DecodeRequest(line.ids, max_len=line.most))
            else:
                self._done[number] = Translation()
        self._read += len(lines)
        if len(lines) < wanted:
            self._ended = True
            self._decoder.batcher.close()


@torch.inference_mode()
def attended_positions(model: StepModel, source: Sequence[int], target: Sequence[int]) -> list[int]:
    """Return the source position to which the step of each target token attends most; the first of equals.

    `source`: tokens, the end mark included; `target`: tokens, without the end mark. Feeding a finished translation again is
    cheaper than keeping the attention of each step of each search: only the few translations with an unknown word need it.
    """
    src = torch.tensor([source], device=model.device)
    tgt_in = torch.tensor([[model.start_token, *target[:-1]]], device=model.device)
    weights = model.attention(src, torch.tensor([len(source)], device=model.device), tgt_in)
    positions: list[int] = weights[0].argmax(dim=1).tolist()
    return positions


def report_problems(
    translations: Iterable[Translation],
    note: Callable[[str], None],
    why_unknown: str,
) -> Iterator[Translation]:
    """Yield the translations unchanged, and call `note` with each problem.

    Problems are lines that were too long, translations that did not end, and unknown words that stay, with the reason
    `why_unknown`.
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
    if unknown:
        note(f"unknown words written as {UNKNOWN}: {unknown:,}, for {why_unknown}")
