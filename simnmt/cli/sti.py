"""`simnmt sti`: train, shard, inspect, profile, plan and run a model that is streamed from storage."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.text_tables import format_pairs
from simnmt.cli.option_values import in_bytes, in_seconds, parse_integers, profile_path
from simnmt.cli.terminal import note, warn

if TYPE_CHECKING:
    from simnmt.calibrate.settings import StiSettings
    from simnmt.calibrate.streaming.encoder_block import Progress
    from simnmt.calibrate.streaming.streaming_profile import ProfileNames
    from simnmt.profile.device_profile import DeviceProfile


def train(
    task: Annotated[Path, typer.Option("--task", metavar="FILE.tsv", help="Examples: sentence<TAB>label, with that header.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write, or to go on with.")],
    dev: Annotated[
        Path | None, typer.Option("--dev", metavar="FILE.tsv", help="Looked at after each epoch; it chooses nothing.")
    ] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", metavar="E", help="Passes over the task [7].")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Ends after M minutes, all sittings together, instead.")
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", metavar="N", help="Layers [12].")] = None,
    slices: Annotated[int | None, typer.Option("--slices", metavar="M", help="Heads, and shards of a layer [12].")] = None,
    width: Annotated[int | None, typer.Option("--width", metavar="D", help="Of the token vectors [96].")] = None,
    ffn: Annotated[int | None, typer.Option("--ffn", metavar="F", help="Feed-forward neurons of a layer [192].")] = None,
    vocab: Annotated[int | None, typer.Option("--vocab", metavar="V", help="Most subwords [4000].")] = None,
    positions: Annotated[
        int | None, typer.Option("--positions", metavar="L", help="Most tokens of a text; longer ones are cut [64].")
    ] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", metavar="mean|first", help="Token vectors that the classifier reads [mean].")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option("--batch-tokens", metavar="N", help="Most tokens of a batch [700].")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="R", help="Greatest learning rate [0.0007].")] = None,
    embedding_rate: Annotated[
        float | None,
        typer.Option("--embedding-rate", metavar="K", help="By how much more word vectors and classifier learn [5]."),
    ] = None,
    dropout: Annotated[float | None, typer.Option("--dropout", metavar="P", help="Of what each layer adds [0.1].")] = None,
    embedding_dropout: Annotated[
        float | None, typer.Option("--embedding-dropout", metavar="P", help="Of word vectors and the classifier's input [0.3].")
    ] = None,
    word_dropout: Annotated[
        float | None, typer.Option("--word-dropout", metavar="P", help="Share of subwords that are hidden [0.1].")
    ] = None,
    smoothing: Annotated[float | None, typer.Option("--smoothing", metavar="P", help="Of the labels [0.1].")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="S", help="Same seed, same weights [1].")] = None,
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where it is trained.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="T", min=1, help="CPU threads; default: torch's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print training.json and nothing else.")] = False,
) -> None:
    """Train a classifier that can be cut: any bottom layers with any slices of them answer; the same command goes on."""
    from simnmt.nmt.errors import need

    for package in ("torch", "sentencepiece"):
        need(package)
    from simnmt.cli.progress import stages
    from simnmt.nmt.training.session import STATE_FILE
    from simnmt.streaming.encoder.learner import recipe_with
    from simnmt.streaming.encoder.task import read_task
    from simnmt.streaming.encoder.trainer import chance_level
    from simnmt.streaming.encoder.trainer import train as train_encoder

    given = {
        "epochs": epochs,
        "minutes": minutes,
        "layers": layers,
        "slices": slices,
        "width": width,
        "ffn": ffn,
        "vocab": vocab,
        "positions": positions,
        "pooling": pooling,
        "batch_tokens": batch_tokens,
        "rate": rate,
        "embedding_rate": embedding_rate,
        "dropout": dropout,
        "embedding_dropout": embedding_dropout,
        "word_dropout": word_dropout,
        "smoothing": smoothing,
        "seed": seed,
    }
    recipe = recipe_with(**given)
    examples = read_task(task)
    looked = None if dev is None else read_task(dev, label_names=examples.label_names)
    try:
        with stages() as show_stage:
            account = train_encoder(examples, out, recipe, dev=looked, device=device, threads=threads, progress=show_stage)
    except BaseException as ended:
        if not isinstance(ended, Exception) and (out / STATE_FILE).is_file():
            note("kept up to the last whole step; the same command goes on from there")
        raise
    if (warning := chance_level(account)) is not None:
        warn(warning)
    if as_json:
        print(json.dumps(account, indent=1, ensure_ascii=False))
        return
    done = account["training"]
    print(
        f"{out}: {recipe.layers} x {recipe.slices} elastic encoder of width {recipe.width}, {account['parameters']:,} numbers"
    )
    spent = f"{done['epochs']} epochs, {done['steps']:,} steps, {done['seconds']:.0f} s"
    print(f"trained on {account['examples']:,} examples, {spent}")
    if "dev" in account:
        dev_scores = account["dev"]
        seen = f", {dev_scores['trained_on']:,} of them trained on too" if dev_scores["trained_on"] else ""
        right = f"{dev_scores['accuracy']:.1%} of {dev_scores['examples']:,}{seen}"
        print(f"right on {dev_scores['path']}: {right} (commonest class {dev_scores['majority']:.1%})")


def shard(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Folder that simnmt sti train wrote, local folder of transformers, or bert-base (random weights).",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="STORE", help="Folder to write; it must not be there yet.")],
    bits: Annotated[
        str | None, typer.Option("--bits", metavar="B,B...", help="Fidelities, of 2 to 6 and 32 [2,3,4,5,6,32].")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew where an interrupted run would be gone on with.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cut a model into shards, one a head, and write each at every fidelity; the same command goes on after an interruption."""
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.cli.progress import stages
    from simnmt.cli.sti_text import format_store
    from simnmt.profile.streaming_cost import BITS
    from simnmt.streaming.encoder.encoder_folder import load_encoder
    from simnmt.streaming.store.shard_store import ShardStore, describe_store
    from simnmt.streaming.store.writer import write_store

    chosen = BITS if bits is None else parse_integers("--bits", bits, "2,6,32")
    loaded = load_encoder(model)
    if loaded.weights.random:
        note(f"{model} has random weights: its shards show speed, not accuracy")
    with stages() as show_stage:
        write_store(
            loaded.weights,
            out,
            bits=chosen,
            beside={} if loaded.tokenizer is None else loaded.tokenizer.files,
            label_names=loaded.label_names,
            progress=None if show_stage is None else lambda done, total: show_stage("sharding", done / total),
            resume=not restart,
        )
    with ShardStore.open(out) as store:
        description = describe_store(store)
    print(json.dumps(description, indent=2) if as_json else format_store(description))


def inspect(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder that simnmt sti shard wrote.")],
    check: Annotated[bool, typer.Option("--check", help="Read all of it, and compare every checksum.")] = False,
    layers: Annotated[bool, typer.Option("--layers", help="Also a table of the layers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell a shard store's model, its sizes and rounding errors by bits, and its outliers."""
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.cli.progress import stages
    from simnmt.cli.sti_text import format_store
    from simnmt.streaming.store.shard_store import ShardStore, describe_store

    with ShardStore.open(store) as opened:
        if check:
            with stages() as show_stage:
                opened.check(None if show_stage is None else lambda done, total: show_stage("checking", done / total))
        description = describe_store(opened) | ({"checked": True} if check else {})
    if as_json:
        print(json.dumps(description, indent=2))
        return
    print(format_store(description, layers=layers))
    if check:
        print(f"checked: all {description['records']} records and the files beside them are what was written")


def profile(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Device profile to write.")],
    store: Annotated[
        Path | None, typer.Argument(metavar="[STORE]", help="Folder that simnmt sti shard wrote; or give --model.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME|FILE", help="In the store's place a Transformer that translates, such as marian."
        ),
    ] = None,
    task: Annotated[
        Path | None,
        typer.Option("--task", metavar="FILE.tsv", help="Also rank the shards by what each brings on these examples."),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option("--lengths", metavar="L,...", help="Padded tokens [16,32; of --model 8,16,32,64].")
    ] = None,
    pace_mb: Annotated[
        float | None, typer.Option("--pace-mb", metavar="MB/S", help="Hold reads to a slower storage [as the disk gives].")
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="PROFILE", help="Keep all else that this profile knows.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", metavar="N", help="Of each layer's width; thrice for reads [9].")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", metavar="T", help="CPU threads [1].")] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="With --model: where the shards would lie [the profile's folder]."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Of the profile [its file's].")] = None,
    device_name: Annotated[
        str | None, typer.Option("--device-name", metavar="NAME", help="Of this box [its processor].")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option("--unit", metavar="UNIT", help="What a token is [the store's sentencepiece model; else subword]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON and nothing else.")] = False,
) -> None:
    """Measure T_io of shards by bits and T_comp of layers by width on this box, and on a task what each shard is worth.

    Importance takes an evaluation for each shard and one more; it is kept beside the profile as it is made, and the same
    command goes on from there. Leave the box alone meanwhile.
    """
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.base.files import refuse_replacing
    from simnmt.calibrate.preconditions import refuse_unwritable
    from simnmt.calibrate.settings import StiSettings
    from simnmt.calibrate.streaming.streaming_profile import ProfileNames, journal_beside
    from simnmt.cli.progress import bar
    from simnmt.profile import profile_summary
    from simnmt.profile.profile_file import read_profile, write_profile

    if (store is None) == (model is None):
        raise typer.BadParameter("name a shard store, or the sizes of a translator with --model, and not both")
    if store is None and task is not None:
        raise typer.BadParameter("random weights are worth nothing on a task", param_hint="--task")
    if store is not None and folder is not None:
        raise typer.BadParameter("a store is read where it lies", param_hint="--folder")
    refuse_replacing(out, task)
    refuse_unwritable(out, "--out")
    before = None if into is None else read_profile(profile_path(into))
    given: dict[str, Any] = {"repeats": repeats, "threads": threads}
    settings = StiSettings(
        lengths=parse_integers("--lengths", lengths, "16,32")
        if lengths is not None
        else ((16, 32) if model is None else (8, 16, 32, 64)),
        pace_bytes_per_s=None if pace_mb is None else 1e6 * pace_mb,
        **{key: value for key, value in given.items() if value is not None},
    )
    named = ProfileNames(name or out.stem, device_name, unit)
    with bar() as move:
        if store is not None:
            device_profile, warnings = _profile_store(store, task, settings, named, out, before, move)
        else:
            from simnmt.calibrate.streaming.streaming_profile import profile_model

            assert model is not None
            device_profile, warnings = profile_model(
                model, folder or out.absolute().parent, settings, named, into=before, progress=move
            )
    write_profile(out, device_profile)
    if task is not None:
        journal_beside(out).unlink(missing_ok=True)
    for warning in warnings:
        warn(warning)
    print(f"written to {out}", file=sys.stderr)
    if as_json:
        print(json.dumps(profile_summary.as_json(device_profile), indent=1, allow_nan=False))
        return
    facts = [
        (what, figure)
        for what, figure in profile_summary.facts(device_profile)
        if what.startswith(("sti", "execution", "device"))
    ]
    print(format_pairs(facts))


def _profile_store(
    store: Path,
    task: Path | None,
    settings: StiSettings,
    named: ProfileNames,
    out: Path,
    before: DeviceProfile | None,
    progress: Progress,
) -> tuple[DeviceProfile, list[str]]:
    from simnmt.base.errors import InputError
    from simnmt.calibrate.streaming.streaming_profile import journal_beside, profile_store
    from simnmt.streaming.encoder.task import read_task
    from simnmt.streaming.store.shard_store import ShardStore

    journal = journal_beside(out)
    if task is not None and journal.exists():
        print(f"going on from {journal}: evaluations that are there count", file=sys.stderr)
    try:
        with ShardStore.open(store) as opened:
            examples = None if task is None else read_task(task, label_names=opened.label_names or None)
            return profile_store(opened, settings, named, journal, task=examples, into=before, progress=progress)
    except BaseException as error:  # a signal is one too
        if task is not None and journal.exists() and not isinstance(error, InputError):
            print(f"evaluations are kept in {journal}; the same command goes on from there", file=sys.stderr)
        raise


def plan(
    profile: Annotated[
        str,
        typer.Option("--profile", metavar="FILE", help="Profile with a block sti, an @name, @odroid-sti or @jetson-sti."),
    ],
    deadline_ms: Annotated[float, typer.Option("--deadline-ms", metavar="T", help="Within which a request is to be done.")],
    preload_mb: Annotated[
        float, typer.Option("--preload-mb", metavar="S", help="What may be kept in memory between requests; 0 for nothing.")
    ],
    length: Annotated[
        int | None, typer.Option("--length", metavar="L", min=1, help="Padded tokens [the greatest length measured].")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="M", min=1, help="Decoder steps within the deadline [1].")
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="The buffer is empty: what a request meets after the system took the memory.")
    ] = False,
    similar: Annotated[
        float,
        typer.Option("--similar", metavar="PERCENT", min=0.0, max=100.0, help="Shards a deeper submodel may lack [0]."),
    ] = 0.0,
    fill: Annotated[
        bool, typer.Option("--fill", help="Beyond the paper: let the pipeline wait as long as the deadline allows.")
    ] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Set the plan beside Load&Exec, StdPL and PreloadModel.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Look for the best bits by integer programming; some 20 s at most.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units and nothing else.")] = False,
    page: Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Write an HTML page with the pipelines.")] = None,
) -> None:
    """Plan a streamed model for a deadline and a preload buffer: layers, slices, bits, and what stays in memory."""
    from simnmt.base.errors import InputError
    from simnmt.base.files import refuse_replacing, written_whole
    from simnmt.cli.sti_costs import read_costs
    from simnmt.cli.sti_text import format_plan
    from simnmt.streaming.plan.plan_summary import summarise_plan

    refuse_replacing(page, None if profile.startswith("@") else profile)
    if page is not None and not page.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {page.absolute().parent}", param_hint="--page")
    if page is not None and page.is_dir():
        raise typer.BadParameter(f"{page} is a folder: name a file", param_hint="--page")
    source = read_costs(profile)
    for warning in source.warnings:
        warn(warning)
    planned = summarise_plan(
        source.cost,
        in_seconds("--deadline-ms", deadline_ms),
        in_bytes("--preload-mb", preload_mb),
        length=length,
        steps=steps,
        cold=cold,
        similar=similar / 100,
        fills_deadline=fill,
        compares=compare,
        exactly=exact,
    )
    if page is not None:
        from simnmt.report.pipelines import render_plan

        try:
            with written_whole(page) as partial:
                text = render_plan(planned, source.name, source.kind, source.model, source.warnings)
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"--page: cannot be written: {error.strerror}", path=page, remedy="name another file") from None
        print(f"written to {page}", file=sys.stderr)
    if as_json:
        about = {"profile": source.name, "kind": source.kind, "model": source.model, "warnings": source.warnings}
        document = {**about, **planned.as_json()}
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        print(format_plan(planned, source))


def run(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder that simnmt sti shard wrote.")],
    deadline_ms: Annotated[float, typer.Option("--deadline-ms", metavar="T", help="Within which a turn is to be done.")],
    preload_mb: Annotated[
        float, typer.Option("--preload-mb", metavar="S", help="What may be kept in memory between engagements; 0 for nothing.")
    ],
    cache_mb: Annotated[
        float | None, typer.Option("--cache-mb", metavar="S", help="What may be kept within the engagement [as --preload-mb].")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="FILE", help="What simnmt sti profile measured [measured now, briefly]."),
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", metavar="L", min=1, help="Padded tokens [the profile's greatest; without it, 16].")
    ] = None,
    pace_mb: Annotated[
        float | None, typer.Option("--pace-mb", metavar="MB/S", help="Hold reads to a slower storage [as the profile's were].")
    ] = None,
    turns: Annotated[int, typer.Option("--turns", metavar="K", min=1, max=1000, help="Of the engagement [3].")] = 3,
    cold: Annotated[
        bool, typer.Option("--cold", help="The first turn finds an empty buffer: the system took the memory.")
    ] = False,
    fill: Annotated[
        bool, typer.Option("--fill", help="Beyond the paper: let the pipeline wait as long as the deadline allows.")
    ] = False,
    text: Annotated[
        list[str] | None, typer.Option("--text", metavar="TEXT", help="To classify; once for each turn, the last one repeats.")
    ] = None,
    task: Annotated[Path | None, typer.Option("--task", metavar="FILE.tsv", help="Its first texts are the turns'.")] = None,
    threads: Annotated[
        int, typer.Option("--threads", metavar="T", min=1, help="That compute, beside the one that reads [1].")
    ] = 1,
    compare: Annotated[
        bool, typer.Option("--compare", help="Then run Load&Exec, StdPL and PreloadModel too, each once.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units and nothing else.")] = False,
) -> None:
    """Stream a model from its store: plan each turn of an engagement, execute it, and set what it took beside the plan.

    Reads find the store's file out of this system's memory. Without a text, tokens are drawn.
    """
    from simnmt.base.errors import InputError
    from simnmt.nmt.errors import need

    deadline_s, preload_bytes = in_seconds("--deadline-ms", deadline_ms), in_bytes("--preload-mb", preload_mb)
    cache_bytes = None if cache_mb is None else in_bytes("--cache-mb", cache_mb)
    if cache_bytes is not None and cache_bytes < preload_bytes:
        raise InputError(f"--cache-mb {cache_mb:g}: less than --preload-mb {preload_mb:g}", remedy="give as much or more")
    if threads > (os.cpu_count() or 1):
        raise InputError(f"--threads {threads}: this box has {os.cpu_count() or 1} CPUs", remedy="give no more")
    need("torch")
    from simnmt.calibrate import profile_assembly
    from simnmt.calibrate.box import describe
    from simnmt.cli.sti_costs import run_costs, run_texts
    from simnmt.cli.sti_text import engagement_document, format_engagement
    from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
    from simnmt.streaming.pipeline.turns import EngagementSettings, inputs_of, run_baselines, run_engagement
    from simnmt.streaming.store.shard_store import ShardStore

    texts = run_texts(text, task, turns)
    box = describe(libraries=False)
    before = profile_assembly.state(box)
    with ShardStore.open(store) as opened:
        encoder = ElasticEncoder(opened.configuration, opened.resident())
        pace = None if pace_mb is None else 1e6 * pace_mb
        source, tokens, pace = run_costs(opened, encoder, profile, length, pace, threads)
        inputs = inputs_of(opened, texts, tokens, turns)
        engaged = EngagementSettings(
            deadline_s=deadline_s,
            preload_bytes=preload_bytes,
            cache_bytes=cache_bytes,
            length=tokens,
            cold=cold,
            pace_bytes_per_s=pace,
            threads=threads,
            fills_deadline=fill,
        )
        done = list(run_engagement(opened, encoder, source.cost, engaged, inputs))
        others = list(run_baselines(opened, encoder, source.cost, engaged, *inputs[0])) if compare else []
        warnings = [*source.warnings, *profile_assembly.busy_warnings([before, profile_assembly.state(box)], "the run")]
        for warning in warnings:
            warn(warning)
        print(
            json.dumps(
                engagement_document(opened, source, engaged, done, others) | {"warnings": warnings}, indent=1, allow_nan=False
            )
            if as_json
            else format_engagement(opened, source, engaged, done, others)
        )


app = typer.Typer(help="A model streamed from storage in shards of chosen fidelity, planned against a deadline and a buffer.")
app.command("train")(train)
app.command("shard")(shard)
app.command("inspect")(inspect)
app.command("profile")(profile)
app.command("plan")(plan)
app.command("run")(run)
