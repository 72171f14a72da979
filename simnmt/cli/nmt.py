"""`simnmt nmt train` and `simnmt nmt translate`."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.cli.terminal import note, warn

if TYPE_CHECKING:
    from simnmt.kernels.packed_products import Clipping
    from simnmt.nmt.sharp_translator import SharpTextTranslator

app = typer.Typer(help="Small translation models of our own: for measuring deployment, not for winning at translation.")

Device = Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where the model runs.")]
Threads = Annotated[int | None, typer.Option("--threads", metavar="T", min=1, help="CPU threads; default: torch's own.")]


@app.callback()
def _verbs() -> None:
    pass


@app.command()
def train(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write, or to go on with.")],
    src: Annotated[
        Path | None,
        typer.Option("--src", metavar="FILE", help="Sources, one a line; or, without --tgt, two columns or JSON Lines."),
    ] = None,
    tgt: Annotated[Path | None, typer.Option("--tgt", metavar="FILE", help="Targets; line i translates line i.")] = None,
    keys: Annotated[
        str | None, typer.Option("--keys", metavar="SRC:TGT", help="--src is JSON Lines: the keys of its two texts.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME|FILE", help="gru (default), bilstm, sharp, transformer, or an architecture."),
    ] = None,
    vocab: Annotated[
        int | None, typer.Option("--vocab", metavar="V", min=1, help="Subwords a side; of both for a transformer [8000].")
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option("--epochs", metavar="E", min=0, help="Ends after E passes over the text [10 if nothing else does]."),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", min=0, help="Ends after N batches.")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", min=0, help="Ends after M minutes, all sittings together.")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option("--batch-tokens", metavar="N", help="Most tokens of a batch's longer side [1024].")
    ] = None,
    heldout: Annotated[
        int | None,
        typer.Option(
            "--heldout", metavar="N", help="Pairs set aside to choose the weights by, and as many to judge them [1000]."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="R", help="Greatest learning rate [0.002; transformer 0.001]."),
    ] = None,
    warmup: Annotated[
        int | None, typer.Option("--warmup", metavar="N", help="Batches until then [500; transformer 1000].")
    ] = None,
    dropout: Annotated[float | None, typer.Option("--dropout", metavar="P", help="Share of values zeroed [0.1].")] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", metavar="float32|bfloat16", help="Of matrix products [float32].")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="S", help="Same seed, same weights [1].")] = None,
    beam: Annotated[int, typer.Option("--beam", metavar="B", min=1, help="Beam of the translations that are judged.")] = 1,
    device: Device = "cpu",
    threads: Threads = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what --out holds; text and recipe are taken from there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print training.json and nothing else.")] = False,
) -> None:
    """Train a model on parallel text; the same command again goes on where it stopped, also after Ctrl-C."""
    from simnmt.nmt.errors import need_packages

    need_packages()
    from simnmt.cli.progress import stages
    from simnmt.nmt.training.recipe import DEFAULT_BUDGET, Budget, CorpusFiles, recipe_for
    from simnmt.nmt.training.session import recorded
    from simnmt.nmt.training.trainer import format_summary
    from simnmt.nmt.training.trainer import train as train_model

    shaping = {
        "batch_tokens": batch_tokens,
        "heldout": heldout,
        "peak_rate": rate,
        "warmup_steps": warmup,
        "dropout": dropout,
        "precision": precision,
        "seed": seed,
    }
    if resume:
        _refuse_beside_resume({"src": src, "tgt": tgt, "keys": keys, "model": model, "vocab": vocab} | shaping)
        text, recipe = recorded(out)
    elif src is None:
        raise typer.BadParameter("name the text: --src FILE --tgt FILE", param_hint="--src")
    else:
        from simnmt.cli.corpus import json_keys

        text, recipe = CorpusFiles(src, tgt, json_keys(keys)), recipe_for(model or "gru", vocab=vocab, **shaping)
    bounded = any(bound is not None for bound in (epochs, steps, minutes))
    budget = Budget(epochs, steps, minutes) if bounded else DEFAULT_BUDGET
    try:
        with stages() as progress:
            account = train_model(
                text, out, recipe, budget=budget, device=device, threads=threads, beam=beam, progress=progress
            )
    except BaseException as ended:
        if not isinstance(ended, Exception):
            _note_kept_step(out)
        raise
    print(json.dumps(account, indent=1, ensure_ascii=False) if as_json else format_summary(account, out))


@app.command()
def translate(
    context: typer.Context,
    model: Annotated[
        list[Path],
        typer.Option(
            "--model",
            metavar="DIR",
            help="Folder that simnmt nmt train wrote; several attentional ones, each with its own --model, are an ensemble.",
        ),
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Text, a sentence a line, plain or gzip; default: standard input.")
    ] = None,
    beam: Annotated[int, typer.Option("--beam", metavar="B", help="Hypotheses kept; 1 is greedy.")] = 1,
    max_len: Annotated[
        int | None,
        typer.Option("--max-len", metavar="N", help="Most tokens of a translation; default: twice the source's and 10."),
    ] = None,
    batching: Annotated[
        str, typer.Option("--batching", metavar="mini|maxi|top-up", help="How batches are formed and refilled.")
    ] = "maxi",
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Most sentences translated together.")] = 64,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            metavar="half-empty|immediate|N",
            help="top-up: refill a batch with at most so many left [half-empty].",
        ),
    ] = None,
    collect: Annotated[
        int | None,
        typer.Option("--collect", metavar="N", help="maxi, top-up: lines sorted by length [maxi: 10 batches; top-up: none]."),
    ] = None,
    fused: Annotated[
        bool, typer.Option("--fused", help="Bias, softmax and search in one pass: the same text, to rounding.")
    ] = False,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            "--vocabulary",
            metavar="BUNDLE",
            help="Multiply the columns alone that simnmt vocab build chose for the sentences under way: a translation may "
            "change with those beside it.",
        ),
    ] = None,
    direction: Annotated[
        str | None, typer.Option("--direction", metavar="NAME", help="Of a bundle with clusters of several directions.")
    ] = None,
    cache_mb: Annotated[
        float, typer.Option("--cache-mb", metavar="MB", help="Memory for copies of columns that come again; with --tune.")
    ] = 0.0,
    tune: Annotated[
        bool, typer.Option("--tune", help="Multiply these columns as is fastest here, by a measurement at load.")
    ] = False,
    sharp: Annotated[
        str | None,
        typer.Option(
            "--sharp",
            metavar="exact|fast",
            help="Decode attentional models with the sharp decoder, one sentence at a time; fast: in 16 bits. Beside several "
            "--model it is exact unless told [off].",
        ),
    ] = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(
            "--dictionary",
            metavar="FILE",
            help="Translations of unknown words, two columns: a source word, a tab, its translation; others are copied.",
        ),
    ] = None,
    keep_unknown: Annotated[
        bool,
        typer.Option("--keep-unknown", help="Write ⁇ for an unknown word, not the source word that the model was reading."),
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="File to write instead of standard output.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="An object a line: text, tokens, score.")] = False,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Translate text: one line out per line in, in order; empty lines stay empty."""
    from simnmt.base.files import refuse_replacing, written_whole
    from simnmt.nmt.errors import need_packages

    need_packages()
    from simnmt.nmt.slot_decoder import parse_batching
    from simnmt.nmt.translation import Translator, read_lines, report_problems
    from simnmt.nmt.vocabulary.alignment import can_attend

    refuse_replacing(out, file)
    if keep_unknown and dictionary is not None:
        raise typer.BadParameter("--dictionary replaces unknown words; leave one out", param_hint="--keep-unknown")
    translator: Translator | SharpTextTranslator
    if len(model) > 1 or sharp is not None:
        from simnmt.nmt.sharp_translator import SharpTextTranslator as Sharp

        _refuse_beside_sharp(context)
        translator = Sharp.load(
            model,
            technique=sharp or "exact",
            beam=beam,
            fused=fused,
            max_len=max_len,
            candidates=vocabulary,
            dictionary=dictionary,
            keep_unknown=keep_unknown,
        )
        _warn_of_clipping(translator.clipping())
    else:
        translator = Translator.load(
            model[0],
            device=device,
            threads=threads,
            beam=beam,
            fused=fused,
            vocabulary=vocabulary,
            direction=direction,
            cache_mb=cache_mb,
            tune=tune,
            batching=parse_batching(batching, batch, threshold=threshold, collect=collect),
            max_len=max_len,
            dictionary=dictionary,
            keep_unknown=keep_unknown,
        )
    why_unknown: str | None = "the model was not reading a word of the source"
    if isinstance(translator, Translator) and not can_attend(translator.model):
        why_unknown = "the model has no attention that would say which words of the source they are"
    with written_whole(out) if out else nullcontext() as partial:
        target: Any = partial.open("w", encoding="utf-8") if partial else nullcontext(sys.stdout)
        with target as sink:
            for translation in report_problems(
                translator.stream(read_lines(file)), note, None if keep_unknown else why_unknown
            ):
                sink.write((translation.as_json() if as_json else translation.text) + "\n")
    if isinstance(translator, Translator) and translator.vocabulary is not None and translator.vocabulary.cache is not None:
        note(str(translator.vocabulary.cache))


def _refuse_beside_sharp(context: typer.Context) -> None:
    """Raise for options of the batched decoders, and for another place than one thread of the processor."""
    others = ("batching", "batch", "threshold", "collect", "direction", "cache_mb", "tune")
    for name in others:
        given = context.get_parameter_source(name)
        if given is not None and given.name not in ("DEFAULT", "DEFAULT_MAP"):
            what = "the sharp decoder translates one sentence at a time; leave it out"
            raise typer.BadParameter(what, param_hint=f"--{name.replace('_', '-')}")
    if context.params["device"] != "cpu" or context.params["threads"] not in (None, 1):
        raise typer.BadParameter("the sharp decoder runs on one thread of the CPU", param_hint="--device, --threads")


def _warn_of_clipping(clipping: Clipping | None) -> None:
    message = None if clipping is None else clipping.warning()
    if message is not None:
        warn(message)


def _refuse_beside_resume(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            option = "--" + {"peak_rate": "rate", "warmup_steps": "warmup"}.get(name, name.replace("_", "-"))
            raise typer.BadParameter("the folder says that itself; leave it out beside --resume", param_hint=option)


def _note_kept_step(out: Path) -> None:
    from simnmt.nmt.errors import TrainingError
    from simnmt.nmt.training.session import read_account

    try:
        standing = read_account(out).get("training", {})
    except TrainingError:
        return
    if "step" in standing:
        note(f"kept up to step {standing['step']:,}; the same command, or --resume --out {out}, goes on from there")
