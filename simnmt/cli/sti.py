"""`simnmt sti`: train, shard, inspect, profile, plan and run a model that is streamed from storage."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from simnmt.base.errors import InputError
from simnmt.base.files import is_standard
from simnmt.base.text_tables import format_pairs
from simnmt.cli.options import (
    AsJson,
    Device,
    Force,
    Threads,
    argument,
    check_output,
    chosen,
    flag,
    option,
    parse_bytes,
    parse_duration,
    parse_integers,
    parse_rate,
    print_json,
    print_result,
    profile_path,
)
from simnmt.cli.terminal import note, progress_bar, say, warn

app = typer.Typer(help="A model streamed from storage in shards of chosen fidelity, planned against a deadline and a buffer.")

Deadline = Annotated[
    float, option("TIME", "Time within which a request must end, such as 200ms.", "--deadline", parser=parse_duration)
]
Preload = Annotated[
    int,
    option("SIZE", "Memory for shards between requests, such as 1MB; 0 for none.", "--preload", parser=parse_bytes),
]
Fill = Annotated[bool, flag("--fill", "Beyond the paper: let the pipeline wait as long as the deadline allows.")]
Cold = Annotated[bool, flag("--cold", "The first request finds an empty buffer: the system took the memory.")]


@app.command()
def train(
    context: typer.Context,
    task: Annotated[Path, option("FILE.tsv", "Examples: sentence<TAB>label, with that header.")],
    out: Annotated[Path, option("DIR", "Folder to write, or to go on with.")],
    dev: Annotated[
        Path | None, option("FILE.tsv", "Examples to report the accuracy on after each epoch; they choose nothing.")
    ] = None,
    epochs: Annotated[float | None, option("E", "Passes over the task. [default: 7]")] = None,
    minutes: Annotated[float | None, option("M", "Ends after M minutes, all sittings together, instead.")] = None,
    layers: Annotated[int | None, option("N", "Layers. [default: 12]")] = None,
    slices: Annotated[int | None, option("M", "Heads, and shards of a layer. [default: 12]")] = None,
    width: Annotated[int | None, option("D", "Width of the token vectors. [default: 96]")] = None,
    ffn: Annotated[int | None, option("F", "Feed-forward neurons of a layer. [default: 192]")] = None,
    vocab: Annotated[int | None, option("V", "Most subwords. [default: 4000]")] = None,
    positions: Annotated[int | None, option("L", "Most tokens of a text; longer ones are cut. [default: 64]")] = None,
    pooling: Annotated[str | None, option("mean|first", "Token vectors that the classifier reads. [default: mean]")] = None,
    batch_tokens: Annotated[int | None, option("N", "Most tokens of a batch. [default: 700]")] = None,
    rate: Annotated[float | None, option("R", "Greatest learning rate. [default: 0.0007]")] = None,
    embedding_rate: Annotated[
        float | None, option("K", "By how much more word vectors and classifier learn. [default: 5]")
    ] = None,
    dropout: Annotated[float | None, option("P", "Dropout of the output of each layer. [default: 0.1]")] = None,
    embedding_dropout: Annotated[
        float | None, option("P", "Dropout of word vectors and of the classifier's input. [default: 0.3]")
    ] = None,
    word_dropout: Annotated[float | None, option("P", "Share of subwords that are hidden. [default: 0.1]")] = None,
    smoothing: Annotated[float | None, option("P", "Smoothing of the labels. [default: 0.1]")] = None,
    seed: Annotated[int | None, option("S", "Same seed, same weights. [default: 1]")] = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Annotated[bool, flag("--json", "Print training.json and nothing else.")] = False,
) -> None:
    """Train a classifier whose bottom layers and slices work alone; repeat the command to resume the training.

    Example: simnmt sti train --task train.tsv --out encoder
    """
    from simnmt.nmt.errors import need

    for package in ("torch", "sentencepiece"):
        need(package)
    from simnmt.nmt.training.trainer import STATE_FILE
    from simnmt.profile.doubts import chance_level_message
    from simnmt.streaming.texts import read_task
    from simnmt.streaming.training import ElasticRecipe, recipe_with, train_encoder

    recipe = recipe_with(**{field.name: context.params.get(field.name) for field in fields(ElasticRecipe)})
    examples = read_task(task)
    dev_task = None if dev is None else read_task(dev, label_names=examples.label_names)
    try:
        with progress_bar() as bar:
            account = train_encoder(examples, out, recipe, dev=dev_task, device=device, threads=threads, progress=bar.stage)
    except BaseException as ended:
        if not isinstance(ended, Exception) and (out / STATE_FILE).is_file():
            note("the same command goes on from the last save, at most two minutes old")
        raise
    scores = account["judged"]
    warning = chance_level_message(scores["accuracy"], scores["majority"], scores["examples"], scores["path"])
    if warning is not None:
        warn(warning)
    if as_json:
        print_json(account)
        return
    done, size = account["training"], f"{recipe.layers} x {recipe.slices} elastic encoder of width {recipe.width}"
    print(f"{out}: {size}, {account['parameters']:,} numbers")
    spent = f"{done['epochs']} epochs, {done['steps']:,} steps, {done['seconds']:.0f} s"
    print(f"trained on {account['examples']:,} examples, {spent}")
    if dev is not None:
        seen = f", {scores['trained_on']:,} of them trained on too" if scores["trained_on"] else ""
        right = f"{scores['accuracy']:.1%} of {scores['examples']:,}{seen}"
        print(f"right on {scores['path']}: {right} (commonest class {scores['majority']:.1%})")


@app.command()
def shard(
    model: Annotated[
        str,
        argument("MODEL", "Folder that simnmt sti train wrote, local folder of transformers, or bert-base (random weights)."),
    ],
    out: Annotated[Path, option("STORE", "Folder to write; it must not be there yet.")],
    bits: Annotated[
        Sequence[int] | None, option("B,B...", "Fidelities, of 2 to 6 and 32. [default: 2,3,4,5,6,32]", parser=parse_integers)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Cut a model into one shard per head and write each shard at every fidelity.

    Example: simnmt sti shard encoder --out store
    """
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.cli.sti_text import format_store
    from simnmt.profile.streaming_cost import BITS
    from simnmt.streaming.encoder_folder import load_encoder
    from simnmt.streaming.store import ShardStore, describe_store, write_store

    weights = load_encoder(model)
    if weights.random:
        note(f"{model} has random weights: its shards show speed, not accuracy")
    with progress_bar() as bar:
        widths = BITS if bits is None else tuple(bits)
        write_store(weights, out, bits=widths, progress=lambda done, total: bar.stage("sharding", done / total))
    with ShardStore(out) as store:
        description = describe_store(store)
    print_result(as_json, lambda: description, lambda: format_store(description))


@app.command()
def inspect(
    store: Annotated[Path, argument("STORE", "Folder that simnmt sti shard wrote.")],
    check: Annotated[bool, flag("--check", "Read all of it, and compare every checksum.")] = False,
    layers: Annotated[bool, flag("--layers", "Also a table of the layers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a shard store's model, its sizes and rounding errors by bits, and its outliers.

    Example: simnmt sti inspect store --check
    """
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.cli.sti_text import format_store
    from simnmt.streaming.store import ShardStore, describe_store

    with ShardStore(store) as opened:
        if check:
            with progress_bar() as bar:
                opened.check(lambda done, total: bar.stage("checking", done / total))
        description = describe_store(opened) | ({"checked": True} if check else {})
    checked = f"\nchecked: all {description['records']} records and the files beside them are intact" if check else ""
    print_result(as_json, lambda: description, lambda: format_store(description, layers=layers) + checked)


@app.command()
def profile(
    context: typer.Context,
    out: Annotated[Path, option("FILE", "Device profile to write.")],
    store: Annotated[Path | None, argument("[STORE]", "Folder that simnmt sti shard wrote; or give --model.")] = None,
    model: Annotated[
        str | None, option("NAME|FILE", "In place of a store, a Transformer that translates, such as marian.")
    ] = None,
    task: Annotated[Path | None, option("FILE.tsv", "Also rank the shards by the accuracy each brings on these.")] = None,
    lengths: Annotated[
        Sequence[int] | None,
        option("L,...", "Padded tokens. [default: 16,32 up to the model's; of --model 8,16,32,64]", parser=parse_integers),
    ] = None,
    pace: Annotated[
        float | None,
        option(
            "RATE",
            "Read no faster than a slower storage, such as 20MB/s. [default: as fast as the disk gives]",
            parser=parse_rate,
        ),
    ] = None,
    into: Annotated[Path | None, option("FILE|@NAME", "Profile to add the costs to; the rest of it is kept.")] = None,
    repeats: Annotated[int | None, option("N", "Repeats of each layer's width; thrice for reads. [default: 9]", min=1)] = None,
    threads: Annotated[int | None, option("T", "CPU threads. [default: 1]", min=1)] = None,
    unit: Annotated[
        str | None, option("UNIT", "What a token is. [default: the store's sentencepiece model; else subword]")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure T_io of shards by bits and T_comp of layers by width on this box, and the accuracy of each shard on a task.

    Importance takes one evaluation per shard and one more. Each is kept beside the profile at once, and the same command
    goes on from there. Leave the box alone meanwhile.

    Example: simnmt sti profile store --out box.json --task dev.tsv
    """
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.calibrate.calibration import refuse_unwritable
    from simnmt.calibrate.journal import journal_path
    from simnmt.calibrate.settings import STI_LENGTHS, STI_MODEL_LENGTHS, StiSettings, lengths_up_to
    from simnmt.calibrate.streaming.profile import Destination, profile_model, profile_store
    from simnmt.profile import profile_summary
    from simnmt.profile.profile_file import read_profile, write_profile
    from simnmt.streaming.store import ShardStore
    from simnmt.streaming.texts import read_task

    if (store is None) == (model is None):
        raise typer.BadParameter("name a shard store, or the sizes of a translator with --model, and not both")
    if store is None and task is not None:
        raise typer.BadParameter("random weights are worth nothing on a task", param_hint="--task")
    if is_standard(out):
        raise typer.BadParameter("evaluations are kept beside the profile: name a file", param_hint="--out")
    check_output(out, force, task)
    refuse_unwritable(out, "--out")
    before = None if into is None else read_profile(profile_path(into))
    settings = partial(chosen, context, StiSettings, pace_bytes_per_s=pace)
    destination = Destination(out, unit, before)
    with progress_bar() as bar:
        if store is not None:
            with ShardStore(store) as opened:
                of_store = settings(lengths=lengths or lengths_up_to(opened.configuration.positions, STI_LENGTHS))
                examples = None if task is None else read_task(task, label_names=opened.label_names or None)
                device_profile, warnings = profile_store(opened, of_store, destination, task=examples, listener=bar)
        else:
            assert model is not None
            of_model = settings(lengths=lengths or STI_MODEL_LENGTHS)
            device_profile, warnings = profile_model(model, of_model, destination, listener=bar)
    write_profile(out, device_profile)
    if task is not None:  # without one, the journal there is another measurement's
        journal_path(out).unlink(missing_ok=True)
    for warning in warnings:
        warn(warning)
    say(f"written to {out}")
    facts = [fact for fact in profile_summary.facts(device_profile) if fact[0].startswith(("sti", "execution", "device"))]
    print_result(as_json, lambda: profile_summary.as_json(device_profile), lambda: format_pairs(facts))


@app.command()
def plan(
    profile: Annotated[str, option("FILE|@NAME", "Profile with a block sti, or @odroid-sti or @jetson-sti.")],
    deadline_s: Deadline,
    preload_bytes: Preload,
    length: Annotated[int | None, option("L", "Padded tokens. [default: the greatest length measured]", min=1)] = None,
    steps: Annotated[int | None, option("M", "Decoder steps within the deadline. [default: 1]", min=1)] = None,
    cold: Cold = False,
    similar: Annotated[
        float, option("PERCENT", "Prefer a deeper submodel if it has at most PERCENT fewer shards.", min=0.0, max=100.0)
    ] = 0.0,
    fill: Fill = False,
    compare: Annotated[bool, flag("--compare", "Set the plan beside Load&Exec, StdPL and PreloadModel.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a streamed model for a deadline and a preload buffer: layers, slices, bits and preloaded shards.

    Example: simnmt sti plan --profile @odroid-sti --deadline 200ms --preload 1MB
    """
    from simnmt.cli.sti_costs import plan_costs
    from simnmt.cli.sti_text import format_plan
    from simnmt.streaming.plan.plan_summary import summarise_plan

    source = plan_costs(profile)
    for warning in source.warnings:
        warn(warning)
    summarise = partial(summarise_plan, source.cost, deadline_s, preload_bytes, length=length, steps=steps, cold=cold)
    planned = summarise(similar=similar / 100, fills_deadline=fill, compares=compare)
    about = {"profile": source.name, "kind": source.kind, "model": source.model, "warnings": source.warnings}
    print_result(as_json, lambda: about | planned.as_json(), lambda: format_plan(planned, source))


@app.command()
def run(
    context: typer.Context,
    store: Annotated[Path, argument("STORE", "Folder that simnmt sti shard wrote.")],
    deadline_s: Deadline,
    preload_bytes: Preload,
    cache_bytes: Annotated[
        int | None,
        option("SIZE", "Memory for shards within the engagement. [default: as --preload]", "--cache", parser=parse_bytes),
    ] = None,
    profile: Annotated[
        str | None, option("FILE|@NAME", "Profile that simnmt sti profile wrote. [default: measure now, briefly]")
    ] = None,
    length: Annotated[
        int | None, option("L", "Padded tokens. [default: the profile's greatest; without it, 16 or the model's]", min=1)
    ] = None,
    pace: Annotated[
        float | None,
        option(
            "RATE", "Read no faster than a slower storage, such as 20MB/s. [default: as the profile's reads]", parser=parse_rate
        ),
    ] = None,
    turns: Annotated[int, option("K", "Turns of the engagement.", min=1, max=1000)] = 3,
    cold: Cold = False,
    fill: Fill = False,
    text: Annotated[list[str] | None, option("TEXT", "Text to classify; one for each turn, the last one repeats.")] = None,
    task: Annotated[Path | None, option("FILE.tsv", "Use the file's first texts as the turns.")] = None,
    threads: Annotated[int, option("T", "Threads that compute, beside the one that reads.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Stream a model from its store: plan each turn of an engagement, execute it, and compare it with the plan.

    Reads find the store's file out of this system's memory. Without a text, tokens are drawn.

    Example: simnmt sti run store --deadline 200ms --preload 1MB --turns 5
    """
    from simnmt.nmt.errors import need

    if cache_bytes is not None and cache_bytes < preload_bytes:
        what = f"--cache of {cache_bytes:,} bytes: less than --preload of {preload_bytes:,}"
        raise InputError(what, remedy="give as much or more")
    if text and task is not None:
        raise InputError("--text and --task: both say what is classified", remedy="give one of them")
    if threads > (os.cpu_count() or 1):
        raise InputError(f"--threads {threads}: this box has {os.cpu_count() or 1} CPUs", remedy="give no more")
    need("torch")
    from simnmt.calibrate import profile_assembly
    from simnmt.calibrate.box import describe
    from simnmt.cli.sti_costs import run_costs
    from simnmt.cli.sti_text import engagement_document, format_engagement
    from simnmt.streaming.encoder import ElasticEncoder
    from simnmt.streaming.pipeline import EngagementSettings, inputs_of, run_engagement
    from simnmt.streaming.store import ShardStore
    from simnmt.streaming.texts import read_task

    texts = tuple(text or ()) if task is None else read_task(task).texts[:turns]
    box = describe()
    before = profile_assembly.state(box)
    with ShardStore(store) as opened:
        encoder = ElasticEncoder(opened.configuration, opened.resident())
        source = run_costs(opened, encoder, profile, length, pace, threads)
        tokens = max(source.cost.comp_s) if length is None else length
        inputs = inputs_of(opened, texts, tokens, turns)
        pace_bytes_per_s = source.pace_bytes_per_s
        engaged = chosen(context, EngagementSettings, length=tokens, pace_bytes_per_s=pace_bytes_per_s, fills_deadline=fill)
        done = list(run_engagement(opened, encoder, source.cost, engaged, inputs))
        warnings = [*source.warnings, *profile_assembly.busy_warnings([before, profile_assembly.state(box)], "the run")]
        for warning in warnings:
            warn(warning)
        result = opened, source, engaged, done
        document = engagement_document(*result) | {"warnings": warnings}
        print_result(as_json, lambda: document, lambda: format_engagement(*result))
