"""Score translations by sentence with the statistics of sacrebleu: those of models, and of any other system from a file.

The file of scores is described in `simnmt.workload.quality`; a scenario reads it as `quality`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base.errors import describe_error, shorten
from simnmt.nmt.errors import NmtError, need
from simnmt.nmt.pretrained_tokenizer import Languages, is_pretrained
from simnmt.nmt.source_lines import LineCoder, Translation
from simnmt.workload import CorpusError
from simnmt.workload.corpus import text_pairs
from simnmt.workload.length_units import count_words
from simnmt.workload.quality import STATISTICS, text_estimates, text_hash
from simnmt.workload.text_lines import TextLines


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How the models of one call translate."""

    beam: int = 1
    vocabulary: Path | None = None
    """A bundle that `simnmt vocab build` made of the model; None: all columns."""
    sharp: str | None = None
    """exact or fast: with the sharp decoder."""
    compute_type: str | None = None
    """Such as int8: with CTranslate2, in this type; None: with torch, in float32."""
    languages: Languages = Languages()  # noqa: RUF009 - frozen
    device: str = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.compute_type is not None and (self.sharp or self.vocabulary or self.languages.given):
            what = "CTranslate2, which translates with a compute type, has no sharp decoder, no bundle and no languages"
            raise NmtError(what, remedy="leave --compute-type out")
        if self.sharp is not None and (self.device != "cpu" or self.languages.given):
            raise NmtError("the sharp decoder runs on the CPU, and with models of simnmt", remedy="leave --sharp out")

    @property
    def suffix(self) -> str:
        """What follows the name of a model that decodes so, such as `-beam4`; empty for greedy search in float32."""
        parts = [f"beam{self.beam}"] if self.beam > 1 else []
        parts += [f"sharp-{self.sharp}"] if self.sharp else []
        parts += [part for part in (self.compute_type, self.vocabulary and self.vocabulary.stem) if part]
        return "".join(f"-{part}" for part in parts)


@dataclass(frozen=True, slots=True)
class Output:
    """The translations of a text by one system."""

    name: str
    texts: Sequence[str]
    lengths: Sequence[int]
    """Tokens of the model without the end, or words."""
    logprobs: Sequence[float]
    """Sums of natural log-probabilities, of the end token too; NaN if unknown."""


def read_text(files: Sequence[Path], keys: tuple[str, str] | None) -> tuple[list[str], list[str]]:
    """Return sources and references of two files, of one file with two columns, or of JSON Lines. Raises `CorpusError`."""
    pairs = list(text_pairs(files, keys, kept=True))
    if not any(source.strip() for source, _ in pairs):
        raise CorpusError("no sentence", path=files[0], remedy="give text with one sentence a line")
    return [source for source, _ in pairs], [reference for _, reference in pairs]


def read_hypotheses(path: Path, name: str, sentences: int) -> Output:
    """Return the translations in a file, a sentence a line. Raises `CorpusError` for another number of lines."""
    texts = list(TextLines(path, kept=True))
    if len(texts) != sentences:
        what = f"{len(texts):,} lines, but the text has {sentences:,} sentences"
        raise CorpusError(what, path=path, remedy="give a translation for each sentence, in the order of the text")
    return Output(name, texts, [count_words(text) for text in texts], [nan] * len(texts))


def translate_text(
    folder: Path,
    name: str,
    sources: Sequence[str],
    options: DecodingOptions,
    progress: Callable[[float], None],
    note: Callable[[str], None],
) -> Output:
    """Return the translations of a text by a model; `note`: is called with their problems. Raises `NmtError`."""
    from simnmt.nmt.translation import report_problems

    translations = list[Translation]()
    for translation in report_problems(_stream(folder, options)(sources), note):
        translations.append(translation)
        progress(len(translations) / len(sources))
    logprobs = [one.logprob for one in translations]
    return Output(name, [one.text for one in translations], [one.tgt_len for one in translations], logprobs)


def _stream(folder: Path, options: DecodingOptions) -> Callable[[Iterable[str]], Iterator[Translation]]:
    """Return the function by which a model translates lines."""
    if options.sharp is not None:
        from simnmt.nmt.sharp_translator import load_sharp

        return load_sharp([folder], technique=options.sharp, beam=options.beam, candidates=options.vocabulary)[1]
    from simnmt.nmt.translation import Translator, check_search, load_folder, parse_batching, translate_lines

    where: dict[str, Any] = {"device": options.device, "threads": options.threads}
    if options.compute_type is None:
        decoding: dict[str, Any] = {"beam": options.beam, "vocabulary": options.vocabulary, "languages": options.languages}
        return Translator.load(folder, **decoding, **where).stream
    from simnmt.nmt.engine import load_engine
    from simnmt.nmt.models import load_pretrained

    if is_pretrained(folder):
        loaded, source = load_pretrained(folder, options.languages)
        target: Any = source
    else:
        loaded, source, target = load_folder(folder)  # type: ignore[assignment]
    model = loaded.model
    check_search(options.beam, None, model.vocab)
    coder = LineCoder(source, target, model.unk_token, model.max_positions)
    engine: Any = load_engine(str(folder.absolute()), backend="ctranslate2", compute_type=options.compute_type, **where)
    batching = parse_batching()
    return lambda lines: translate_lines(lines, coder, engine.sentence_decoder(batching, options.beam, scored=True))


def load_metrics(tokenize: str = "13a") -> dict[str, Any]:
    """Return sacrebleu's chrF and BLEU by name. `tokenize`: its tokeniser of BLEU. Raises `NmtError` for an unknown one."""
    metrics = need("sacrebleu.metrics")
    try:
        return {"chrf": metrics.CHRF(), "bleu": metrics.BLEU(tokenize=tokenize, force=True)}
    except Exception as error:  # sacrebleu raises many, of missing packages too
        raise NmtError(f"--tokenize: {shorten(describe_error(error))}", remedy="such as 13a, intl, zh or char") from None


def score_outputs(
    sources: Sequence[str], references: Sequence[str], outputs: Sequence[Output], metrics: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the columns of a file of scores, system after system, and the facts that it states."""
    statistics = list[list[int]]()
    for output in outputs:
        # Not public, but sacrebleu's only way to the statistics of sentences; the tests compare the sums with its scores.
        parts = (metric._extract_corpus_statistics(output.texts, [references]) for metric in metrics.values())
        statistics += [[*of_chrf, *of_bleu] for of_chrf, of_bleu in zip(*parts, strict=True)]
    count, times = len(sources), len(outputs)
    features = {"src_chars": [len(text.strip()) for text in sources], "src_words": [count_words(text) for text in sources]}
    columns: dict[str, Any] = {
        "sentence": np.tile(np.arange(count, dtype=np.int32), times),
        "model": [output.name for output in outputs for _ in sources],
        "source_hash": [text_hash(text) for text in sources] * times,
        "reference_hash": [text_hash(text) for text in references] * times,
        **{name: np.array(values * times, np.int32) for name, values in features.items()},
        "output_len": np.array([length for output in outputs for length in output.lengths], np.int32),
        "output_hash": [text_hash(text) for output in outputs for text in output.texts],
        "logprob": np.array([value for output in outputs for value in output.logprobs], np.float64),
    }
    columns |= dict(zip(STATISTICS, np.array(statistics, np.int32).T, strict=True))
    signatures = {name: str(metric.get_signature()).split("|version:") for name, metric in metrics.items()}
    return columns, {name: signature for name, (signature, _) in signatures.items()} | {"sacrebleu": signatures["bleu"][1]}


def split_name(text: str) -> tuple[Path, str]:
    """Return path and name of `PATH=NAME`; the last part of the path is the name of a path alone.

    >>> split_name("models/small")[1], split_name("models/small=edge")[1]
    ('small', 'edge')
    """
    path, _, name = text.rpartition("=")
    if not path or Path(text).exists():
        path, name = text, ""
    return Path(path), name or Path(path).absolute().name


def named_outputs(
    models: Sequence[str],
    hypotheses: Sequence[str],
    sources: Sequence[str],
    options: DecodingOptions,
    progress: Callable[[str, float], None],
    note: Callable[[str], None],
) -> list[Output]:
    """Return the translations of all systems: those in files, then those of models.

    Raises `NmtError` for two systems of one name, before the long work, and the errors of files and models.
    """
    files = [split_name(text) for text in hypotheses]
    folders = list[tuple[Path, str]]()
    for text in models:
        folder, name = split_name(text)
        folders.append((folder, name if text.endswith(f"={name}") else name + options.suffix))
    names = [name for _, name in (*files, *folders)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise NmtError(f"two systems are called {twice[0]}", remedy="name one of them, as in FILE=NAME")
    outputs = [read_hypotheses(path, name, len(sources)) for path, name in files]
    for folder, name in folders:

        def shown(share: float, name: str = name) -> None:
            progress(f"{name} translates", share)

        outputs.append(translate_text(folder, name, sources, options, shown, note))
    return outputs


def summarise_scores(columns: Mapping[str, Any], outputs: Sequence[Output], facts: Mapping[str, str]) -> dict[str, Any]:
    """Return corpus scores of all systems with their 95 % intervals, as `simnmt nmt score --json` prints them."""
    statistics = np.column_stack([columns[name] for name in STATISTICS])
    records, first = [], 0
    for output in outputs:
        of_system = statistics[first : first + len(output.texts)]
        first += len(output.texts)
        record: dict[str, Any] = {"model": output.name, "sentences": len(output.texts)}
        for name, ends in text_estimates(of_system).items():
            record |= {f"{name}{end}": value for end, value in zip(("", "_low", "_high"), ends, strict=True)}
        records.append(record)
    return {"systems": records, **facts}
