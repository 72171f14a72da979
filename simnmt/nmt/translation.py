"""Translate lines of text, in order: by any step model with its tokenisers, or by the sharp decoder."""

from __future__ import annotations

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
from simnmt.nmt.models import LoadedModel, load_model, load_pretrained
from simnmt.nmt.output_layer import Output
from simnmt.nmt.pretrained_tokenizer import Languages, is_pretrained
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import BatchDecoder, DecodeRequest
from simnmt.nmt.source_lines import LineCoder, SourceLine, Translation, load_subwords
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.subwords import UNKNOWN, Subwords, Tokeniser
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary


def parse_batching(kind: str = "maxi", size: int = 64, *, threshold: str | None = None, collect: int | None = None) -> Batching:
    """Return the batching of lines that are all present, or are read as fast as needed.

    `kind`: mini, maxi or top-up. `threshold`, of top-up: half-empty (the default), immediate or a number of sentences.
    `collect`: lines that are sorted by length before they are cut into batches; by default ten batches for maxi (FNI-09), none
    for top-up. Raises `NmtError` for settings out of range or that contradict each other.
    """
    settings: dict[str, object] = {"kind": kind.replace("-", "_"), "size": size}
    if settings["kind"] != "top_up":
        settings["longest_wait_ms"] = None  # batches are full
    if threshold is not None:
        settings["threshold"] = int(threshold) if threshold.isdecimal() else threshold.replace("-", "_")
    if collect is not None or kind == "maxi":
        settings["collect"] = min(10 * size, MOST) if collect is None else collect
    checked: TypeAdapter[Any] = TypeAdapter(BatchingConfiguration)
    try:
        batching: Batching = checked.validate_python(settings).batching
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        options = {"size": "--batch", "threshold": "--threshold", "collect": "--collect"}
        option = options.get(str(first["loc"][-1]) if first["loc"] else "", "--batching")
        raise NmtError(f"{option}: {message_of(first).replace('Input should', 'must')}") from None
    return batching


def translate_lines(lines: Iterable[str], coder: LineCoder, decoder: BatchDecoder) -> Iterator[Translation]:
    """Yield a translation per line, in order; read a batch, or a collection, whenever the batcher has too few lines.

    `decoder`: an empty one. Raises `OutOfMemory` for a batch that does not fit.
    """
    lines, batching = iter(lines), decoder.batcher.batching
    wanted = batching.collected or batching.size
    in_work, done = dict[int, SourceLine](), dict[int, Translation]()
    read = written = 0
    waits = ended = False
    while decoder.busy or not ended:
        few = decoder.active <= batching.threshold and decoder.batcher.waiting < batching.size
        if not ended and (few or waits):
            new_lines = coder.lines(list(islice(lines, wanted)))
            for number, line in enumerate(new_lines, read):
                if line.ids:
                    in_work[number] = line
                    decoder.arrive(number, DecodeRequest(line.ids, max_len=line.most))
                else:
                    done[number] = Translation()
            read += len(new_lines)
            if ended := len(new_lines) < wanted:
                decoder.batcher.close()
        is_idle = not decoder.active
        move, finished = decoder.act()
        waits = move is None and is_idle
        for number, hypothesis in finished:
            line = in_work.pop(number)
            done[number] = coder.translation(line, hypothesis)
        while written in done:
            yield done.pop(written)
            written += 1


@dataclass(slots=True)
class Translator:
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
    """The active columns of the output layer; not with `fused`, since its search is fused anyway."""
    batching: Batching | None = None
    """How lines are batched; None: as `parse_batching` does by default."""
    max_len: int | None = None
    """Most tokens of a translation, by default twice the source's and 10."""

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
        languages: Languages = Languages(),  # noqa: B008 - frozen
        **options: Any,
    ) -> Translator:
        """Load a folder that `simnmt nmt train` wrote, or a folder or id of Hugging Face with its tokeniser.

        Args:
            folder: the folder, or the id.
            device: cpu, cuda or cuda:0.
            threads: threads of torch in this process from now on.
            vocabulary: a bundle that `simnmt vocab build` made of this model, see `load_vocabulary`.
            languages: what the text is translated from and to, for models of Hugging Face that need it.
            options: the fields `beam`, `fused`, `batching` and `max_len` of `Translator`.

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
        model, part = loaded.model.to(where), None
        if vocabulary is not None:
            from simnmt.nmt.vocabulary.restricted_vocabulary import load_vocabulary

            part = load_vocabulary(vocabulary, model)
        return cls(model, source, target, vocabulary=part, **options)

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the tokens of each line, the end mark last, cut to what the model takes; none for an empty line."""
        return [line.ids for line in self._coder().lines(list(lines))]

    def stream(self, lines: Iterable[str]) -> Iterator[Translation]:
        """Yield a translation per line; see `translate_lines`."""
        search, output = Search(self.beam, scored=True), Output(self.fused, self.vocabulary)
        return translate_lines(lines, self._coder(), Decoder(self.model, self.batching or parse_batching(), search, output))

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """Return a translation per line, in order."""
        return list(self.stream(lines))

    def _coder(self) -> LineCoder:
        model = self.model
        return LineCoder(self.source, self.target, model.unk_token, model.max_positions, self.max_len)


def check_search(beam: int, max_len: int | None, vocab: int) -> None:
    """Raise `NmtError` for a beam, or a most length, that no search of so many tokens can have."""
    if not 1 <= beam < vocab:
        raise NmtError(f"beam is {beam:,}", remedy=f"give 1 to {vocab - 1:,}")
    if max_len is not None and max_len < 1:
        raise NmtError(f"max_len is {max_len}", remedy="give 1 or more")


def load_folder(folder: Path) -> tuple[LoadedModel, Subwords, Subwords]:
    """Load a model that `simnmt nmt train` wrote, and its source and target subwords; raises `NmtError` for another folder."""
    source, target = load_subwords(folder)
    loaded = load_model(str(folder.absolute()))  # a folder may have the name of an architecture, such as gru
    sizes = loaded.architecture.src_vocab, loaded.architecture.tgt_vocab
    if (source.size, target.size) != sizes:
        what = f"subwords for {source.size:,} and {target.size:,} tokens, but a model of {sizes[0]:,} and {sizes[1]:,}"
        raise NmtError(what, path=folder, remedy="copy the folder again, all its files together")
    return loaded, source, target


NOTES = 5
"""Most lines too long that are reported one by one; the rest is only counted."""


def report_problems(translations: Iterable[Translation], note: Callable[[str], None]) -> Iterator[Translation]:
    """Yield the translations unchanged; call `note` for lines too long, translations that did not end, and unknown words."""
    cut = unfinished = unknown = 0
    for number, translation in enumerate(translations, 1):
        cut, unfinished = cut + translation.cut, unfinished + (not translation.ended)
        unknown += translation.unknown
        if translation.cut and cut <= NOTES:
            note(f"line {number} is too long: only its first {translation.src_len:,} tokens are translated")
        yield translation
    for count, what in (
        (cut if cut > NOTES else 0, "lines in all were too long"),
        (unfinished, "translations were stopped at their greatest length"),
        (unknown, f"unknown words written as {UNKNOWN}"),
    ):
        if count:
            note(f"{count:,} {what}")
