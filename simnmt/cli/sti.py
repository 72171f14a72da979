"""`simnmt sti`: train, shard, inspect, profile, plan and run a model that is streamed from storage."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from simnmt.base.files import is_standard
from simnmt.base.text_tables import format_pairs
from simnmt.cli.nmt import training_bar
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
    pace_option,
    parse_integers,
    print_result,
    profile_path,
)
from simnmt.cli.sti_plan import plan, run
from simnmt.cli.terminal import format_record, note, progress_bar, say, warn

_LENGTHS = "Padded tokens. [default: 16,32 up to the model's; of --model 8,16,32,64]"

app = typer.Typer(help="A model streamed from storage in shards of chosen fidelity, planned against a deadline and a buffer.")


@app.command()
def train(
    context: typer.Context,
    task: Annotated[Path, option("FILE.tsv", "Examples: sentence<TAB>label, with that header.")],
    out: Annotated[Path, option("DIR", "Folder to write, or to go on with.")],
    dev: Annotated[Path | None, option("FILE.tsv", "Examples whose accuracy is told after each epoch.")] = None,
    epochs: Annotated[float | None, option("E", "Passes over the task. [default: 7]")] = None,
    minutes: Annotated[float | None, option("M", "Ends after M minutes, all sittings together, instead.")] = None,
    layers: Annotated[int | None, option("N", "Layers. [default: 12]")] = None,
    slices: Annotated[int | None, option("M", "Heads, and shards of a layer. [default: 12]")] = None,
    width: Annotated[int | None, option("D", "Width of the token vectors. [default: 96]")] = None,
    ffn: Annotated[int | None, option("F", "Feed-forward neurons of a layer. [default: 192]")] = None,
    vocab: Annotated[int | None, option("V", "Most subwords. [default: 4000]")] = None,
    positions: Annotated[int | None, option("L", "Most tokens of a text; longer ones are cut. [default: 64]")] = None,
    batch_tokens: Annotated[int | None, option("N", "Most tokens of a batch. [default: 700]")] = None,
    rate: Annotated[float | None, option("R", "Greatest learning rate. [default: 0.0007]")] = None,
    dropout: Annotated[float | None, option("P", "Dropout of the output of each layer. [default: 0.1]")] = None,
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
    from simnmt.profile.doubts import chance_level_message
    from simnmt.streaming.texts import read_task
    from simnmt.streaming.training import ElasticRecipe, recipe_with, train_encoder

    recipe = recipe_with(**{field.name: context.params.get(field.name) for field in fields(ElasticRecipe)})
    examples = read_task(task)
    dev_task = None if dev is None else read_task(dev, label_names=examples.label_names)
    with training_bar(out) as bar:
        where: dict[str, Any] = {"device": device, "threads": threads}
        account = train_encoder(examples, out, recipe, dev=dev_task, progress=bar.stage, **where)
    scores = account["judged"]
    warning = chance_level_message(scores["accuracy"], scores["majority"], scores["examples"], scores["path"])
    if warning is not None:
        warn(warning)
    spent = {name: account["training"][name] for name in ("epochs", "steps", "seconds")}
    judged = {"accuracy_share": scores["accuracy"], "commonest_class_share": scores["majority"], "on": scores["path"]}
    shown = {"model": str(out), "parameters": account["parameters"], "examples": account["examples"], **spent, **judged}
    print_result(as_json, lambda: account, lambda: format_record(shown | {"of_them_trained_on": scores["trained_on"]}))


@app.command()
def shard(
    model: Annotated[str, argument("MODEL", "Folder of sti train or of transformers, or bert-base (random weights).")],
    out: Annotated[Path, option("STORE", "Folder to write; it must not be there yet.")],
    bits: Annotated[Any, option("B,B...", "Fidelities. [default: 2,3,4,5,6,32]", parser=parse_integers)] = None,
    as_json: AsJson = False,
) -> None:
    """Cut a model into one shard per head and write each shard at every fidelity.

    Example: simnmt sti shard encoder --out store
    """
    from simnmt.nmt.errors import need

    need("torch")
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
    print_result(as_json, lambda: description, lambda: format_record(description))


@app.command()
def inspect(
    store: Annotated[Path, argument("STORE", "Folder that simnmt sti shard wrote.")],
    check: Annotated[bool, flag("--check", "Read all of it, and compare every checksum.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a shard store's model, its sizes and rounding errors by bits, and its outliers.

    `rmse over s`: rounding error in standard deviations of the layer's weights.

    Example: simnmt sti inspect store --check
    """
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.streaming.store import ShardStore, describe_store

    with ShardStore(store) as opened:
        if check:
            with progress_bar() as bar:
                opened.check(lambda done, total: bar.stage("checking", done / total))
        description = describe_store(opened) | ({"checked": True} if check else {})
    print_result(as_json, lambda: description, lambda: format_record(description))


@app.command()
def profile(
    context: typer.Context,
    out: Annotated[Path, option("FILE", "Device profile to write.")],
    store: Annotated[Path | None, argument("[STORE]", "Folder that simnmt sti shard wrote; or give --model.")] = None,
    model: Annotated[str | None, option("NAME|FILE", "Instead of a store, a Transformer that translates.")] = None,
    task: Annotated[Path | None, option("FILE.tsv", "Also rank the shards by the accuracy each brings on these.")] = None,
    lengths: Annotated[Any, option("L,...", _LENGTHS, parser=parse_integers)] = None,
    pace: Annotated[float | None, pace_option("as fast as the disk gives")] = None,
    into: Annotated[Path | None, option("FILE|@NAME", "Profile to add the costs to; the rest of it is kept.")] = None,
    repeats: Annotated[int | None, option("N", "Repeats of each layer's width; thrice for reads. [default: 9]", min=1)] = None,
    threads: Annotated[int | None, option("T", "CPU threads. [default: 1]", min=1)] = None,
    unit: Annotated[str | None, option("UNIT", "What a token is. [default: the store's tokeniser; else subword]")] = None,
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
    from simnmt.calibrate.streamed_profile import Destination, profile_model, profile_store
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


app.command()(plan)
app.command()(run)
