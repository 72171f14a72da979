"""`simnmt reproduce`: one verb per paper, which writes its tables, claims and figures beside ours."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from simnmt.cli.run import progress_bar
from simnmt.cli.terminal import warn

Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder for page and JSON; default: a new one under reports/.")
]
Profiles = Annotated[
    list[str] | None, typer.Option("--profile", metavar="FILE|@NAME", help="Instead of the shipped ones; repeatable.")
]
Sentences = Annotated[
    int | None, typer.Option("--requests", metavar="N", help="Sentences timed at most, of each set and online run.")
]
Jobs = Annotated[int, typer.Option("--jobs", metavar="J", min=0, help="Processes; 0: one per processor.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def files_by_label(option: str, given: Sequence[str] | None) -> dict[str, Path]:
    """Return the files by label, the part before `=`. Raises `InputError` for a missing or repeated label."""
    from simnmt.base.errors import InputError

    paths: dict[str, Path] = {}
    for pair in given or ():
        label, equals, path = pair.partition("=")
        if not (label and equals and path):
            raise InputError(f"{option} {pair}: no LABEL=FILE", remedy=f"name the direction first: {option} fr-en={pair}")
        if label in paths:
            raise InputError(f"{option}: {label} twice", remedy="give one file a direction")
        paths[label] = Path(path)
    return paths


@contextmanager
def stage_printer() -> Iterator[Callable[[str], None]]:
    """Yield a function that prints the next stage on standard error: in one place on a terminal, else on a line each."""
    from simnmt.cli.progress import stages

    with stages() as show_stage:
        if show_stage is None:
            yield lambda what: print(what, file=sys.stderr, flush=True)
        else:
            yield lambda what: show_stage(what, None)


@contextmanager
def reserved_directory(out: Path | None, paper: str) -> Iterator[Path]:
    """The folder to write, known to be free and writable; without a name, a new one under reports/."""
    from simnmt.results.run_directory import check_free, reserved

    if out is not None:
        check_free(out)
        yield out
    else:
        with reserved(Path("reports"), f"reproduce-{paper}") as directory:
            yield directory


def write_reproduction(directory: Path, document: dict[str, Any], page: str) -> None:
    """Page and document, whole or not at all."""
    from simnmt.results import run_directory as files

    with files.whole(directory) as folder:
        (folder / files.PAGE).write_text(page, encoding="utf-8")
        files.write_json(folder / "reproduction.json", document)


def print_reproduction(directory: Path, document: dict[str, Any], text: str, as_json: bool) -> None:
    """On standard output: the document, or the text and where the page is."""
    from simnmt.results.run_directory import PAGE

    if as_json:
        print(json.dumps(document | {"directory": str(directory)}, indent=1, allow_nan=False))
    else:
        print(f"{text}\n\npage: {directory / PAGE}")


def sti(
    out: Out = None,
    studies: Annotated[
        list[Path] | None,
        typer.Option(
            "--study", metavar="FILE", help="Instead of the shipped ones; repeatable. With --store: where its study is kept."
        ),
    ] = None,
    pipeline: Annotated[
        Path | None,
        typer.Option(
            "--pipeline", metavar="FILE", help="Of `python -m benchmarks.sti_pipeline --out`, default: the shipped one."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="STORE", help="Shards of a trained classifier to study: minutes; with --task."),
    ] = None,
    task: Annotated[
        Path | None, typer.Option("--task", metavar="FILE.tsv", help="Examples that it was not trained on, to judge by.")
    ] = None,
    importance_task: Annotated[
        Path | None,
        typer.Option("--importance-task", metavar="FILE.tsv", help="Of --store: other examples, to rank its shards by."),
    ] = None,
    importance_on_task: Annotated[
        bool, typer.Option("--importance-on-task", help="Rank them on --task itself: its order then looks too good.")
    ] = False,
    profiles: Annotated[
        list[Path] | None,
        typer.Option("--profile", metavar="FILE", help="Of `simnmt sti profile`: its importance, and a device to plan for."),
    ] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="NAME", help="Of --store: measure this part, again if need be; repeatable."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Of --store: fewer deadlines, orders and examples.")] = False,
    as_json: AsJson = False,
) -> None:
    """Elastic pipelining (ASPLOS 2023): its claims, a trained classifier's study beside them, and pipelines drawn."""
    from simnmt.papers.sti.reproduction import reproduce
    from simnmt.papers.sti.study import StudySource

    source = StudySource.from_options(
        store,
        task,
        importance_task=importance_task,
        importance_on_task=importance_on_task,
        profiles=tuple(profiles or ()),
        parts=tuple(parts or ()),
        quick=quick,
    )
    with reserved_directory(out, "sti") as directory:
        with stage_printer() as say:
            report = reproduce(studies=studies, pipeline=pipeline, source=source, say=say).report()
        document = report.document()
        write_reproduction(directory, document, report.page())
    print_reproduction(directory, document, report.text(), as_json)


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
    from simnmt.base.errors import InputError

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
    from simnmt.base.errors import InputError

    if p95_ms is not None and not 0.0 < p95_ms < 1e9:
        raise InputError(f"--p95-ms {p95_ms:g}: no time to hold", remedy="give milliseconds above 0")
    from simnmt.papers.fni.devices import named_profiles
    from simnmt.papers.fni.topup import reproduce

    options: dict[str, Any] = {
        "profiles": named_profiles(profiles) if profiles else None,
        "p95_s": None if p95_ms is None else p95_ms / 1e3,
        "requests": requests,
        "jobs": jobs or os.cpu_count() or 1,
    }
    _write_report(out, "topup", lambda progress: reproduce(progress=progress, **options), as_json)


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
    from simnmt.base.errors import InputError

    if measure is not None and measure < 1:
        raise InputError(f"--measure {measure}: no sentence to decode", remedy="give 1 or more")
    if model is not None and measure is None:
        raise InputError(f"--model {model} without --measure: no sentence to decode", remedy="give --measure N as well")
    from simnmt.papers.fni.devices import named_profiles
    from simnmt.papers.fni.fused import reproduce

    options: dict[str, Any] = {
        "profiles": named_profiles(profiles) if profiles else None,
        "measure": measure,
        "model": model,
        "requests": requests,
        "jobs": jobs or os.cpu_count() or 1,
    }
    _write_report(out, "fused", lambda progress: reproduce(progress=progress, **options), as_json)


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
    from simnmt.base.errors import InputError

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
    from simnmt.papers.fvp.reproduction import reproduce
    from simnmt.papers.fvp.study_texts import directions_of

    directions = directions_of(
        train=files_by_label("--text", text),
        targets=files_by_label("--targets", targets),
        heldout=files_by_label("--heldout", heldout),
        references=files_by_label("--references", references),
    )
    with reserved_directory(out, "vocab") as directory:
        with stage_printer() as say:
            reproduction = reproduce(
                studies=studies, benches=benches, model=model, directions=directions, parts=parts or (), quick=quick, say=say
            )
        report = reproduction.report()
        write_reproduction(directory, report.document(), report.page())
    print_reproduction(directory, report.document(), report.text(), as_json)


app.command()(sti)


def _write_report(out: Path | None, paper: str, run: Callable[[Callable[..., None] | None], Any], as_json: bool) -> None:
    """Run a reproduction under a progress bar, write its page and document, and print it."""
    with reserved_directory(out, paper) as directory:
        with progress_bar() as progress:
            report = run(progress).report()
        write_reproduction(directory, report.document(), report.page())
    print_reproduction(directory, report.document(), report.text(), as_json)


def _sharp(
    out: Path | None,
    quick: bool,
    rounds: int | None,
    model: str | None,
    text: Path | None,
    references: Path | None,
    as_json: bool,
) -> None:
    from simnmt.papers.sharp.reproduction import reproduce

    with reserved_directory(out, "sharp") as directory:
        with progress_bar() as progress:
            result = reproduce(quick=quick, rounds=rounds, model=model, text=text, references=references, progress=progress)
        for warning in result.warnings:
            warn(warning)
        report = result.report()
        write_reproduction(directory, report.document(), report.page())
    print_reproduction(directory, report.document(), report.text(), as_json)


def _fit(out: Path, requests: int | None, jobs: int, as_json: bool) -> None:
    from simnmt.papers.cnmt import inferred_profiles
    from simnmt.results.run_directory import check_free, whole

    check_free(out)
    with progress_bar() as progress:
        fitted, replay = inferred_profiles.fit_and_replay(requests=requests or 100_000, jobs=jobs, progress=progress)
    with whole(out) as folder:
        inferred_profiles.write_fit(folder, fitted, replay)
    if as_json:
        print(json.dumps(inferred_profiles.document(replay) | {"directory": str(out)}, indent=1, allow_nan=False))
    else:
        print(f"{inferred_profiles.as_text(fitted, replay)}\n\nprofiles and RTT series: {out}")


def _find_network(measured: str, as_json: bool) -> None:
    from simnmt.papers.cnmt.reproduction import find_network

    search = find_network(measured)
    print(json.dumps(search.document(), indent=1, allow_nan=False) if as_json else search.text())


def _reproduce(out: Path | None, measured: str, requests: int | None, jobs: int, as_json: bool) -> None:
    from simnmt.papers.cnmt.reproduction import reproduce
    from simnmt.results import run_directory as files

    with reserved_directory(out, "cnmt") as directory:
        with files.scratch(directory) as room, progress_bar() as progress:
            reproduction = reproduce(measured=measured, requests=requests, folder=room, jobs=jobs, progress=progress)
        report = reproduction.report()
        document = report.document()
        write_reproduction(directory, document, report.page())
    print_reproduction(directory, document, report.text(), as_json)
