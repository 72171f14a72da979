"""`simnmt nmt train`, `simnmt nmt translate` and `simnmt nmt score`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from simnmt.cli.options import (
    Device,
    Force,
    Keys,
    Threads,
    argument,
    check_output,
    flag,
    json_keys,
    option,
    print_result,
    refuse_given,
)
from simnmt.cli.terminal import Bar, note, progress_bar, warn

app = typer.Typer(help="Small translation models of our own: for measuring deployment, not for winning at translation.")


SEARCH = ("beam", "fused", "max_len")
"""Options of both translators."""
BATCHED = ("src_lang", "tgt_lang", "batching", "batch", "threshold", "collect")
"""Options of the batched translator alone."""
RECIPE = ("heldout", "batch_tokens", "peak_rate", "warmup_steps", "dropout", "precision", "seed")
"""Options that are fields of a recipe."""


@contextmanager
def training_bar(out: Path) -> Iterator[Bar]:
    """Draw a bar while a training runs; after a signal, say whether the same command goes on."""
    from simnmt.nmt.training.trainer import STATE_FILE

    try:
        with progress_bar() as bar:
            yield bar
    except BaseException as ended:
        if not isinstance(ended, Exception) and (out / STATE_FILE).is_file():
            note("the same command goes on from the last save, at most two minutes old")
        raise


@app.command()
def train(
    context: typer.Context,
    out: Annotated[Path, option("DIR", "Folder to write, or whose training to go on with.")],
    src: Annotated[Path, option("FILE", "Sources, one a line; without --tgt, two columns or JSON Lines.")],
    tgt: Annotated[Path | None, option("FILE", "Targets; line i translates line i.")] = None,
    keys: Keys = None,
    model: Annotated[str, option("NAME|FILE", "gru, bilstm, sharp, transformer, or an architecture file.")] = "gru",
    vocab: Annotated[int | None, option("V", "Subwords a side; of both for a transformer. [default: 8000]", min=1)] = None,
    epochs: Annotated[float | None, option("E", "End after E passes. [default: 10 if nothing else ends it]", min=0)] = None,
    steps: Annotated[int | None, option("N", "End after N batches.", min=0)] = None,
    minutes: Annotated[float | None, option("M", "End after M minutes, all sittings together.", min=0)] = None,
    batch_tokens: Annotated[int | None, option("N", "Most tokens of a batch's longer side. [default: 1024]")] = None,
    heldout: Annotated[int | None, option("N", "Pairs to choose the weights by, and as many to judge. [default: 1000]")] = None,
    peak_rate: Annotated[float | None, option("R", "Greatest rate. [default: 0.002; transformer 0.001]", "--rate")] = None,
    warmup_steps: Annotated[int | None, option("N", "Batches until then. [default: 500; transformer 1000]", "--warmup")] = None,
    dropout: Annotated[float | None, option("P", "Share of values zeroed. [default: 0.1]")] = None,
    precision: Annotated[str | None, option("float32|bfloat16", "Number format of products. [default: float32]")] = None,
    seed: Annotated[int | None, option("S", "Same seed, same weights. [default: 1]")] = None,
    beam: Annotated[int, option("B", "Beam of the translations that are judged.", min=1)] = 1,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Annotated[bool, flag("--json", "Print training.json and nothing else.")] = False,
) -> None:
    """Train a model on parallel text; the same command goes on where it stopped.

    Example: simnmt nmt train --src news.de --tgt news.en --steps 2000 --out model
    """
    from simnmt.nmt.errors import need_packages

    need_packages()
    from simnmt.nmt.training.recipe import CorpusFiles, recipe_for
    from simnmt.nmt.training.trainer import DEFAULT_BUDGET, Budget
    from simnmt.nmt.training.translation import format_summary, train_translation

    text = CorpusFiles(src, tgt, json_keys(keys))
    recipe = recipe_for(model, vocab=vocab, **{name: context.params[name] for name in RECIPE})
    bounded = any(bound is not None for bound in (epochs, steps, minutes))
    budget = Budget(epochs, steps, minutes) if bounded else DEFAULT_BUDGET
    where: dict[str, Any] = {"device": device, "threads": threads}
    with training_bar(out) as bar:
        account = train_translation(text, out, recipe, budget=budget, beam=beam, progress=bar.stage, **where)
    print(json.dumps(account, indent=1, ensure_ascii=False) if as_json else format_summary(account, out))


_MODEL = """Folder that simnmt nmt train wrote, or folder or id of Hugging Face; several attentional ones of simnmt, each with
its own --model, are an ensemble."""
_VOCABULARY = """Multiply the columns alone that simnmt vocab build chose for the sentences under way: a translation may change
with those beside it."""
_SHARP = """Decode attentional models with the sharp decoder, one sentence at a time; fast: in 16 bits. Beside several --model
its default is exact. [default: off]"""


@app.command()
def translate(
    context: typer.Context,
    model: Annotated[list[Path], option("DIR|ID", _MODEL)],
    file: Annotated[Path | None, argument("[FILE]", "Text, a sentence a line. [default: standard input]")] = None,
    beam: Annotated[int, option("B", "Hypotheses kept; 1 is greedy.")] = 1,
    max_len: Annotated[int | None, option("N", "Most tokens of a translation. [default: twice the source's and 10]")] = None,
    batching: Annotated[str, option("mini|maxi|top-up", "How batches are formed and refilled.")] = "maxi",
    batch: Annotated[int, option("N", "Most sentences translated together.")] = 64,
    threshold: Annotated[str | None, option("half-empty|immediate|N", "top-up: refill below. [default: half-empty]")] = None,
    collect: Annotated[int | None, option("N", "Lines sorted by length. [default: maxi: 10 batches; top-up: none]")] = None,
    fused: Annotated[bool, flag("--fused", "Bias, softmax and search in one pass: the same text, to rounding.")] = False,
    vocabulary: Annotated[Path | None, option("BUNDLE", _VOCABULARY)] = None,
    sharp: Annotated[str | None, option("exact|fast", _SHARP)] = None,
    src_lang: Annotated[str | None, option("CODE", "Language as the model writes it: deu_Latn (NLLB), de_DE (mBART).")] = None,
    tgt_lang: Annotated[str | None, option("CODE", "Language to translate to; for Marian of several, such as deu.")] = None,
    out: Annotated[Path | None, option("FILE", "File to write instead of standard output.")] = None,
    force: Force = False,
    as_json: Annotated[bool, flag("--json", "An object a line: text, tokens, score.")] = False,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Translate text: one line out per line in, in order; empty lines stay empty.

    Example: simnmt nmt translate --model model news.de --out news.en
    """
    from simnmt.base.files import is_standard, written_whole
    from simnmt.nmt.errors import need_packages

    need_packages()
    from simnmt.nmt.pretrained_tokenizer import Languages
    from simnmt.nmt.translation import Translator, parse_batching, report_problems
    from simnmt.workload.text_lines import TextLines

    if out is not None and is_standard(out):
        out = None
    check_output(out, force, file)
    search = {name: context.params[name] for name in SEARCH}
    if len(model) > 1 or sharp is not None:
        from simnmt.nmt.sharp_translator import load_sharp

        refuse_given(context, BATCHED, "the sharp decoder translates one sentence at a time; leave it out")
        if device != "cpu" or threads not in (None, 1):
            raise typer.BadParameter("the sharp decoder runs on one thread of the CPU", param_hint="--device, --threads")
        translator, stream = load_sharp(model, technique=sharp or "exact", candidates=vocabulary, **search)
        clipping = translator.clipping()
        if clipping is not None and (message := clipping.warning()) is not None:
            warn(message)
    else:
        batches = parse_batching(batching, batch, threshold=threshold, collect=collect)
        search |= {"device": device, "threads": threads, "vocabulary": vocabulary}
        stream = Translator.load(model[0], batching=batches, languages=Languages(src_lang, tgt_lang), **search).stream
    with written_whole(out) if out else nullcontext() as partial:
        target: Any = partial.open("w", encoding="utf-8") if partial else nullcontext(sys.stdout)
        with target as sink:
            for translation in report_problems(stream(TextLines(file or Path("-"))), note):
                sink.write((translation.as_json() if as_json else translation.text) + "\n")


_MODELS = "Folders that simnmt nmt train wrote, or folders or ids of Hugging Face; =NAME: its name in the file."
_TOKENIZE = "Sacrebleu's tokeniser of BLEU, such as zh."


@app.command()
def score(
    text: Annotated[Path, option("SRC", "Sources, one a line; without --references, two columns or JSON Lines.")],
    out: Annotated[Path, option("FILE", "File of scores to write, such as scores.parquet.")],
    models: Annotated[list[str] | None, argument("[DIR|ID[=NAME]...]", _MODELS)] = None,
    references: Annotated[Path | None, option("REF", "Their translations by people; line i translates line i.")] = None,
    keys: Keys = None,
    hypotheses: Annotated[list[str] | None, option("FILE[=NAME]", "Translations by any other system; repeatable.")] = None,
    beam: Annotated[int, option("B", "Hypotheses kept; 1 is greedy.", min=1)] = 1,
    vocabulary: Annotated[Path | None, option("BUNDLE", _VOCABULARY)] = None,
    sharp: Annotated[str | None, option("exact|fast", "Decode attentional models with the sharp decoder.")] = None,
    compute_type: Annotated[str | None, option("TYPE", "Such as int8: translate with CTranslate2 in this type.")] = None,
    src_lang: Annotated[str | None, option("CODE", "Language as the model writes it.")] = None,
    tgt_lang: Annotated[str | None, option("CODE", "Language to translate to.")] = None,
    tokenize: Annotated[str, option("NAME", _TOKENIZE)] = "13a",
    force: Force = False,
    as_json: Annotated[bool, flag("--json", "Print the corpus scores as JSON and nothing else.")] = False,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Score translations by sentence: of models, and of other systems from files.

    The file is the `quality` of devices in a scenario. Decoder options hold for all models of a call.

    Example: simnmt nmt score small big --text test.fr --references test.en --out scores.parquet
    """
    from simnmt.nmt.errors import need, need_packages

    if models:
        need_packages()
    need("sacrebleu")
    from simnmt.base.errors import InputError
    from simnmt.base.text_tables import format_table
    from simnmt.nmt.pretrained_tokenizer import Languages
    from simnmt.nmt.scoring import (
        DecodingOptions,
        load_metrics,
        named_outputs,
        read_text,
        score_outputs,
        split_name,
        summarise_scores,
    )
    from simnmt.results.number_text import format_interval
    from simnmt.workload.quality import SCORES, write_scores

    models, hypotheses = models or [], hypotheses or []
    if not models and not hypotheses:
        raise typer.BadParameter("give models, or translations of another system", param_hint="DIR, --hypotheses")
    files = [path for path in (text, references) if path is not None]
    if not out.absolute().parent.is_dir():
        raise InputError("its folder does not exist", path=out, remedy="make the folder first")
    check_output(out, force, *files, *(split_name(name)[0] for name in (*models, *hypotheses)))
    options = DecodingOptions(beam, vocabulary, sharp, compute_type, Languages(src_lang, tgt_lang), device, threads)
    metrics, (sources, targets) = load_metrics(tokenize), read_text(files, json_keys(keys))
    with progress_bar() as bar:
        outputs = named_outputs(models, hypotheses, sources, options, bar.stage, note)
    columns, facts = score_outputs(sources, targets, outputs, metrics)
    summary = summarise_scores(columns, outputs, facts)
    write_scores(out, columns, facts | {"text": text.name, "references": files[-1].name})

    def shown(record: dict[str, Any], name: str) -> str:
        return " ".join(format_interval(record[name], record[f"{name}_low"], record[f"{name}_high"], signs="minus"))

    def table() -> str:
        rows = [[one["model"], f"{one['sentences']:,}", *(shown(one, name) for name in SCORES)] for one in summary["systems"]]
        return f"{format_table(['model', 'sentences', 'chrF', 'BLEU'], rows)}\nscores: {out}"

    print_result(as_json, lambda: summary, table)
