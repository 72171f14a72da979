"""`simnmt reproduce`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from simnmt.cli.reproduce_options import AsJson, Jobs, Out, Profiles, Sentences, by_label, directory_of, said, tell, write
from simnmt.cli.reproduce_sti import sti
from simnmt.cli.run import progress_bar
from simnmt.cli.terminal import warn

app = typer.Typer(help="The papers' tables as published, and ours beside them.", no_args_is_help=True)


@app.callback()
def _papers() -> None:
    """One verb per paper."""


@app.command()
def cnmt(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder to write: page and JSON, or what --fit infers; default: a new one under reports/.",
        ),
    ] = None,
    measured: Annotated[
        str, typer.Option("--measured", metavar="SCENARIO|@NAME", help="Table I on measured profiles, such as your own.")
    ] = "@table1-measured",
    requests: Annotated[int | None, typer.Option("--requests", metavar="N", help="Requests per run of the table.")] = None,
    jobs: Jobs = 0,
    fit: Annotated[
        bool, typer.Option("--fit", help="Infer the device profiles and CP2's level anew, and nothing else (minutes).")
    ] = False,
    network: Annotated[
        bool, typer.Option("--find-network", help="Search the RTTs at which each measured device wins, and nothing else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """C-NMT (ISCAS 2022): Table I, its ratios, figures and claims: published, on inferred and on measured profiles."""
    from simnmt.errors import InputError

    if fit and network:
        raise InputError("--fit and --find-network together", remedy="give one at a time")
    if network and out is not None:
        raise InputError("--find-network writes nothing", remedy="leave out --out")
    if requests is not None and requests < 1:
        raise InputError(f"--requests {requests}: nothing to run", remedy="give 1 or more")
    jobs = jobs or os.cpu_count() or 1
    if fit:
        _fit(out or Path("reports/cnmt-fit"), requests, jobs, as_json)
    elif network:
        _find_network(measured, as_json)
    else:
        _reproduce(out, measured, requests, jobs, as_json)


@app.command()
def topup(
    out: Out = None,
    profiles: Profiles = None,
    p95_ms: Annotated[
        float | None, typer.Option("--p95-ms", metavar="MS", help="What is to be held online; default: by the device.")
    ] = None,
    requests: Sentences = None,
    jobs: Jobs = 0,
    as_json: AsJson = False,
) -> None:
    """Top-up batching (anonymous ACL submission): occupancies, speeds, claims, and the load within a p95."""
    from simnmt.errors import InputError

    if p95_ms is not None and not 0.0 < p95_ms < 1e9:
        raise InputError(f"--p95-ms {p95_ms:g}: no time to hold", remedy="give milliseconds above 0")
    _topup(out, profiles, p95_ms, requests, jobs or os.cpu_count() or 1, as_json)


@app.command()
def fused(
    out: Out = None,
    profiles: Profiles = None,
    measure: Annotated[
        int | None, typer.Option("--measure", metavar="N", help="A real decoder as well, on N sentences of each mix; minutes.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME|PATH", help="Of --measure; default: gru-512, random weights.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option("--requests", metavar="N", help="Sentences timed at most, of each set.")
    ] = None,
    jobs: Jobs = 0,
    as_json: AsJson = False,
) -> None:
    """Fused softmax and search (ACL submission): Tables 2 and 3, shares and speeds, on profiles and a real decoder."""
    from simnmt.errors import InputError

    if measure is not None and measure < 1:
        raise InputError(f"--measure {measure}: no sentence to decode", remedy="give 1 or more")
    if model is not None and measure is None:
        raise InputError(f"--model {model} without --measure: no sentence to decode", remedy="give --measure N as well")
    _fused(out, profiles, measure, model, requests, jobs or os.cpu_count() or 1, as_json)


@app.command()
def sharp(
    out: Out = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Half a minute: fewer rounds and systems, fewer words; no verdicts.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option("--rounds", metavar="N", help="Interleaved rounds, of which medians are taken.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="FOLDER", help="A trained attentional model: what does each rung change?")
    ] = None,
    text: Annotated[
        Path | None, typer.Option("--text", metavar="FILE", help="Sentences for it, one a line; the first 200 count.")
    ] = None,
    references: Annotated[
        Path | None, typer.Option("--references", metavar="FILE", help="A translation of each of its lines: what BLEU changes.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sharp models on dull hardware (EMNLP 2017): Tables 1 and 2 and figure 1, measured live on one thread; minutes."""
    from simnmt.errors import InputError

    if rounds is not None and rounds < 1:
        raise InputError(f"--rounds {rounds}: nothing to measure", remedy="give 1 or more")
    _sharp(out, quick, rounds, model, text, references, as_json)


@app.command()
def vocab(
    out: Out = None,
    studies: Annotated[
        list[Path] | None,
        typer.Option(
            "--study", metavar="FILE", help="Instead of the shipped ones; repeatable. With --model: where its study is kept."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", help="A trained model to study: an hour or more, minutes with --quick."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="LABEL=FILE", help="Sources to make clusters of, a direction each; repeatable."),
    ] = None,
    targets: Annotated[
        list[str] | None, typer.Option("--targets", metavar="LABEL=FILE", help="Their translations, for candidate lists.")
    ] = None,
    heldout: Annotated[
        list[str] | None, typer.Option("--heldout", metavar="LABEL=FILE", help="Other sources, to judge by; repeatable.")
    ] = None,
    references: Annotated[
        list[str] | None, typer.Option("--references", metavar="LABEL=FILE", help="A translation of each of these, for BLEU.")
    ] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="NAME", help="Of --model: measure this part, again if need be; repeatable."),
    ] = None,
    benches: Annotated[
        list[Path] | None,
        typer.Option("--bench", metavar="FILE", help="Of `simnmt vocab bench --out`, instead of the shipped ones; repeatable."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Of --model: fewer sentences, clusters and rounds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Vocabulary projection by clusters (2022): Tables 1 to 6 and figures 2 to 4, and a trained model's study beside them."""
    from simnmt.report.vocab_page import render_vocab
    from simnmt.reproduce.vocab.reproduction import reproduce
    from simnmt.reproduce.vocab.studying import Texts
    from simnmt.reproduce.vocab.tables import document as document_of
    from simnmt.reproduce.vocab.text import as_text

    texts = Texts(
        train=by_label("--text", text),
        targets=by_label("--targets", targets),
        heldout=by_label("--heldout", heldout),
        references=by_label("--references", references),
    )
    with directory_of(out, "vocab") as directory:
        with said() as say:
            found = reproduce(
                studies=studies, benches=benches, model=model, texts=texts, parts=parts or (), quick=quick, say=say
            )
        document = document_of(found)
        write(directory, document, render_vocab(document))
    tell(directory, document, as_text(found), as_json)


app.command()(sti)


def _fused(
    out: Path | None,
    names: list[str] | None,
    measure: int | None,
    model: str | None,
    requests: int | None,
    jobs: int,
    as_json: bool,
) -> None:
    from simnmt.report.fused_page import render_fused
    from simnmt.reproduce.fused.reproduction import reproduce
    from simnmt.reproduce.fused.tables import document as document_of
    from simnmt.reproduce.fused.text import as_text
    from simnmt.reproduce.topup.devices import named_profiles

    profiles = named_profiles(names) if names else None
    with directory_of(out, "fused") as directory:
        with progress_bar() as progress:
            found = reproduce(profiles=profiles, requests=requests, measure=measure, model=model, jobs=jobs, progress=progress)
        document = document_of(found)
        write(directory, document, render_fused(document))
    tell(directory, document, as_text(found), as_json)


def _sharp(
    out: Path | None,
    quick: bool,
    rounds: int | None,
    model: str | None,
    text: Path | None,
    references: Path | None,
    as_json: bool,
) -> None:
    from simnmt.report.sharp_page import render_sharp
    from simnmt.reproduce.sharp.reproduction import reproduce
    from simnmt.reproduce.sharp.tables import document as document_of
    from simnmt.reproduce.sharp.text import as_text

    with directory_of(out, "sharp") as directory:
        with progress_bar() as progress:
            found = reproduce(quick=quick, rounds=rounds, model=model, text=text, references=references, progress=progress)
        for warning in found.warnings:
            warn(warning)
        document = document_of(found)
        write(directory, document, render_sharp(document))
    tell(directory, document, as_text(found), as_json)


def _topup(
    out: Path | None, names: list[str] | None, p95_ms: float | None, requests: int | None, jobs: int, as_json: bool
) -> None:
    from simnmt.report.topup_page import render_topup
    from simnmt.reproduce.topup.devices import named_profiles
    from simnmt.reproduce.topup.reproduction import reproduce
    from simnmt.reproduce.topup.tables import document as document_of
    from simnmt.reproduce.topup.text import as_text

    profiles = named_profiles(names) if names else None
    with directory_of(out, "topup") as directory:
        with progress_bar() as progress:
            p95_s = None if p95_ms is None else p95_ms / 1e3
            found = reproduce(profiles=profiles, p95_s=p95_s, requests=requests, jobs=jobs, progress=progress)
        document = document_of(found)
        write(directory, document, render_topup(document))
    tell(directory, document, as_text(found), as_json)


def _fit(out: Path, requests: int | None, jobs: int, as_json: bool) -> None:
    from simnmt.reproduce.cnmt import confirm
    from simnmt.results.run_directory import check_free, whole

    check_free(out)
    with progress_bar() as progress:
        fitted, replication = confirm.fit_and_replay(requests=requests or 100_000, jobs=jobs, progress=progress)
    with whole(out) as folder:
        confirm.write_fit(folder, fitted, replication)
    if as_json:
        print(json.dumps(replication.document() | {"directory": str(out)}, indent=1, allow_nan=False))
    else:
        print(f"{confirm.as_text(fitted, replication)}\n\nprofiles and RTT series: {out}")


def _find_network(measured: str, as_json: bool) -> None:
    from simnmt.reproduce.cnmt.reproduction import find_network

    found = find_network(measured)
    print(json.dumps(found.document(), indent=1, allow_nan=False) if as_json else found.text())


def _reproduce(out: Path | None, measured: str, requests: int | None, jobs: int, as_json: bool) -> None:
    from simnmt.report.reproduction_page import render_reproduction
    from simnmt.reproduce.cnmt.reproduction import reproduce
    from simnmt.results import run_directory as files

    with directory_of(out, "cnmt") as directory:
        with files.scratch(directory) as room, progress_bar() as progress:
            found = reproduce(measured=measured, requests=requests, folder=room, jobs=jobs, progress=progress)
        document = found.document()
        write(directory, document, render_reproduction(document, {part.name: part for part in found.parts}))
    tell(directory, document, found.text(), as_json)
