"""`simnmt sti`: train, shard, inspect, profile, plan and run a model that is streamed from storage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.errors import InputError
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
    parse_bytes,
    parse_integers,
    print_result,
    profile_path,
    time_option,
)
from simnmt.cli.terminal import format_record, note, progress_bar, say, warn

if TYPE_CHECKING:
    from simnmt.profile.device_profile import DeviceProfile
    from simnmt.profile.streaming_cost import StiCost
    from simnmt.streaming.pipeline import Turn
    from simnmt.streaming.plan.plan_summary import PlannedRun, PlanSummary

_LENGTHS = "Padded tokens. [default: 16,32 up to the model's; of --model 8,16,32,64]"

app = typer.Typer(help="A model streamed from storage in shards of chosen fidelity, planned against a deadline and a buffer.")


Profile = Annotated[str, option("FILE|@NAME", "Profile with costs of streaming, as simnmt sti profile writes it.")]
Deadline = Annotated[float, time_option("Time within which a request must end, such as 200ms.", "--deadline")]
Preload = Annotated[
    int, option("SIZE", "Memory for shards between requests, such as 1MB; 0 for none.", "--preload", parser=parse_bytes)
]
_CACHE = "The same within the engagement. [default: as --preload]"
Fill = Annotated[bool, flag("--fill", "Beyond the paper: let the pipeline wait as long as the deadline allows.")]
Cold = Annotated[bool, flag("--cold", "The first request finds an empty buffer: the system took the memory.")]


@app.command()
def train(
    context: typer.Context,
    task: Annotated[Path, option("FILE.tsv", "Examples: sentence<TAB>label, with that header.")],
    out: Annotated[Path, option("DIR", "Folder to write, or to go on with.")],
    dev: Annotated[Path | None, option("FILE.tsv", "Examples whose accuracy is printed after each epoch.")] = None,
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
    from simnmt.calibrate.calibration import refuse_unwritable
    from simnmt.calibrate.journal import journal_path
    from simnmt.calibrate.settings import STI_LENGTHS, STI_MODEL_LENGTHS, StiSettings, lengths_up_to
    from simnmt.calibrate.streamed_model import profile_model, profile_store
    from simnmt.profile import profile_summary
    from simnmt.profile.profile_file import write_profile
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
    settings = partial(chosen, context, StiSettings, pace_bytes_per_s=pace)
    with progress_bar() as bar:
        if store is not None:
            with ShardStore(store) as opened:
                of_store = settings(lengths=lengths or lengths_up_to(opened.configuration.positions, STI_LENGTHS))
                examples = None if task is None else read_task(task, label_names=opened.label_names or None)
                device_profile, warnings = profile_store(opened, of_store, out, unit=unit, task=examples, listener=bar)
        else:
            assert model is not None
            of_model = settings(lengths=lengths or STI_MODEL_LENGTHS)
            device_profile, warnings = profile_model(model, of_model, out, unit=unit, listener=bar)
    write_profile(out, device_profile)
    if task is not None:  # without one, the journal there is another measurement's
        journal_path(out).unlink(missing_ok=True)
    warn(*warnings)
    say(f"written to {out}")
    facts = [fact for fact in profile_summary.facts(device_profile) if fact[0].startswith(("sti", "execution", "device"))]
    print_result(as_json, lambda: profile_summary.as_json(device_profile), lambda: format_pairs(facts))


@app.command()
def plan(
    profile: Profile,
    deadline_s: Deadline,
    preload_bytes: Preload,
    length: Annotated[int | None, option("L", "Padded tokens. [default: the greatest length measured]", min=1)] = None,
    steps: Annotated[int | None, option("M", "Decoder steps within the deadline. [default: 1]", min=1)] = None,
    cold: Cold = False,
    similar: Annotated[float, option("PERCENT", "Prefer a deeper submodel of so few shards less.", min=0, max=100)] = 0.0,
    fill: Fill = False,
    compare: Annotated[bool, flag("--compare", "Set the plan beside Load&Exec, StdPL and PreloadModel.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a streamed model for a deadline and a preload buffer: layers, slices, bits and preloaded shards.

    The presets @odroid-sti and @jetson-sti are inferred from the paper's description of its boards.

    Example: simnmt sti plan --profile @odroid-sti --deadline 200ms --preload 1MB
    """
    from simnmt.profile.streaming_cost import BERT_BASE
    from simnmt.streaming.plan.plan_summary import PRESETS, board_cost, summarise_plan

    warnings = list[str]()
    if profile in PRESETS:
        board, model = PRESETS[profile]
        name, kind, cost = profile, "inferred", board_cost(board, BERT_BASE)
    else:
        measured, warnings = _read_profile(profile)
        assert measured.sti is not None
        name, kind, model, cost = measured.name, measured.sti.kind, measured.sti.model, measured.sti_cost
    summarise = partial(summarise_plan, cost, deadline_s, preload_bytes, length=length, steps=steps, cold=cold)
    planned = summarise(similar=similar / 100, fills_deadline=fill, compares=compare)
    about = {"profile": name, "kind": kind, "model": model}
    document = about | {"warnings": warnings} | planned.as_json()
    print_result(as_json, lambda: document, lambda: _with_remarks(about | _plan_record(cost, planned), planned.remarks))


def _read_profile(profile: str) -> tuple[DeviceProfile, list[str]]:
    """Return a profile with a block `sti`, and print and return what there is to doubt of it. Raises `ProfileError`."""
    from simnmt.profile.doubts import profile_doubts
    from simnmt.profile.profile_file import read_profile

    measured = read_profile(profile_path(profile))
    assert measured.sti_cost  # refuses a profile without the block
    doubts = [doubt.message for doubt in profile_doubts(measured, ["sti"])]
    warn(*doubts)
    return measured, doubts


def _with_remarks(record: dict[str, Any], remarks: Sequence[str]) -> str:
    return "\n\n".join(filter(None, (format_record(record), "\n".join(remarks))))


def _plan_record(cost: StiCost, planned: PlanSummary) -> dict[str, Any]:
    """Return what the text shows of a plan: submodel and memory, its layers, and its contestants."""
    plan, moments = planned.run.plan, planned.run.timeline.as_json()
    record = _plan_numbers(planned.run) | {"deadline_s": plan.deadline_s, "tokens": plan.length}
    record |= {"embedding_s": cost.t_embed(plan.length), "head_s": cost.head_s}
    record |= {"slowed by reads": cost.slowing(plan.slices_per_layer)}
    if cost.decoder is not None:
        record |= {"decoder_layers": len(plan.layer_indices) - plan.layers, "decoder_steps": plan.steps}
    record["executed layers (* preloaded)"] = [
        {name: layer[name] for name in ("layer", "slices", "granted_s", "left_s", "load_s")}
        | {name: moments[name][at] for name in ("load_end_s", "compute_begin_s", "stall_s")}
        | {"bits": [f"{bits}{'*' * held}" for bits, held in zip(layer["bits"], layer["preloaded"], strict=True)]}
        for at, layer in enumerate(planned.layers)
    ]
    methods = [{"method": name, **_plan_numbers(run)} for name, run in planned.contestants.items()]
    return record | ({"methods": methods} if methods else {})


def _plan_numbers(run: PlannedRun | None) -> dict[str, Any]:
    """Return size, latency and memory of a plan; None: of one that meets no deadline."""
    if run is None:
        return {"deadline_met": False}
    plan, memory = run.plan, asdict(run.memory)
    return {
        "layers": plan.layers,
        "slices": plan.slices_per_layer,
        "shards": len(plan.bits),
        "mean_bits": sum(plan.bits.values()) / len(plan.bits),
        "latency_s": plan.latency_s,
        "waits_s": run.timeline.stall_s,
        "deadline_met": not plan.misses_deadline,
        **{name: memory[name] for name in ("preload_bytes", "working_bytes")},
    }


@app.command()
def run(
    context: typer.Context,
    store: Annotated[Path, argument("STORE", "Folder that simnmt sti shard wrote.")],
    profile: Profile,
    deadline_s: Deadline,
    preload_bytes: Preload,
    cache_bytes: Annotated[int | None, option("SIZE", _CACHE, "--cache", parser=parse_bytes)] = None,
    length: Annotated[int | None, option("L", "Padded tokens. [default: the greatest length measured]", min=1)] = None,
    turns: Annotated[int, option("K", "Turns of the engagement.", min=1, max=1000)] = 3,
    cold: Cold = False,
    fill: Fill = False,
    text: Annotated[list[str] | None, option("TEXT", "Text to classify; one for each turn, the last one repeats.")] = None,
    task: Annotated[Path | None, option("FILE.tsv", "Use the file's first texts as the turns.")] = None,
    threads: Annotated[int, option("T", "Threads that compute, beside the one that reads.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Stream a model from its store: plan each turn of an engagement, execute it, and compare it with the plan.

    Reads have the pace of the profile and find the store's file out of this system's memory. Without a text, tokens are drawn.

    Example: simnmt sti run store --profile box.json --deadline 200ms --preload 1MB --turns 5
    """
    if cache_bytes is not None and cache_bytes < preload_bytes:
        what = f"--cache of {cache_bytes:,} bytes: less than --preload of {preload_bytes:,}"
        raise InputError(what, remedy="give as much or more")
    if text and task is not None:
        raise InputError("--text and --task: both say what is classified", remedy="give one of them")
    if threads > (os.cpu_count() or 1):
        raise InputError(f"--threads {threads}: this box has {os.cpu_count() or 1} CPUs", remedy="give no more")
    from simnmt.calibrate import profile_assembly
    from simnmt.calibrate.box import describe
    from simnmt.profile.doubts import busy_message
    from simnmt.streaming.encoder import ElasticEncoder
    from simnmt.streaming.pipeline import EngagementSettings, inputs_of, run_engagement
    from simnmt.streaming.store import ShardStore
    from simnmt.streaming.texts import read_task

    texts = tuple(text or ()) if task is None else read_task(task).texts[:turns]
    box = describe()
    before = profile_assembly.state(box)
    measured, warnings = _read_profile(profile)
    block, cost = measured.sti, measured.sti_cost
    assert block is not None
    tokens = max(cost.comp_s) if length is None else length
    about = {"store": str(store), "profile": measured.name, "kind": block.kind, "length": tokens}
    about |= {"pace_bytes_per_s": block.io.paced_bytes_per_s}
    with ShardStore(store) as opened:
        if block.fingerprint is not None:
            opened.check_model(block.fingerprint)
        encoder = ElasticEncoder(opened.configuration, opened.resident())
        inputs = inputs_of(opened, texts, tokens, turns)
        paced = {"pace_bytes_per_s": block.io.paced_bytes_per_s, "length": tokens, "fills_deadline": fill}
        engaged = chosen(context, EngagementSettings, **paced)
        done = list(run_engagement(opened, encoder, cost, engaged, inputs))
        about |= {"fingerprint": opened.fingerprint, "cache_bytes": engaged.capacity_bytes}
    conditions = profile_assembly.conditions_block(before, profile_assembly.state(box), None, [])
    busy = [busy_message(conditions.others_cpus, "the run")] if conditions.busy else []
    warn(*busy)
    remarks = list(_engagement_remarks(cost, done))
    turns_done = [_turn_document(turn) for turn in done]
    document = about | {"turns": turns_done, "remarks": remarks, "warnings": warnings + busy}
    rows = [_turn_row(number, turn) for number, turn in enumerate(turns_done, start=1)]
    record = about | {"turns": rows, "layers of the last turn": turns_done[-1]["execution"]["layers"]}
    print_result(as_json, lambda: document, lambda: _with_remarks(record, remarks))


def _turn_document(turn: Turn) -> dict[str, Any]:
    """Return a turn with the likeliest class of its text and the class's probability."""
    shares = turn.execution.logits[0].softmax(0)
    return {
        "plan": turn.plan.as_json(),
        "held": len(turn.held),
        "held_bytes": turn.held_bytes,
        "kept_bytes": turn.kept_bytes,
        "planned_latency_s": turn.predicted.latency_s,
        "planned_stall_s": turn.predicted.stall_s,
        "execution": turn.execution.as_json(),
        "logits": turn.execution.logits.tolist(),
        "class": int(shares.argmax()),
        "class_share": float(shares.max()),
    }


def _turn_row(number: int, turn: dict[str, Any]) -> dict[str, Any]:
    size = {"turn": number, "layers": turn["plan"]["layers"], "slices": turn["plan"]["slices_per_layer"]}
    measured = {name: turn["execution"][name] for name in ("latency_s", "stall_s", "bytes_read")}
    shown = ("held_bytes", "kept_bytes", "planned_latency_s", "planned_stall_s", "class", "class_share")
    return size | measured | {name: turn[name] for name in shown}


def _engagement_remarks(cost: StiCost, turns: Sequence[Turn]) -> Iterator[str]:
    def numbers(which: Callable[[Turn], bool]) -> str:
        return ", ".join(str(number) for number, turn in enumerate(turns, start=1) if which(turn))

    if cost.importance is None:
        yield "importance was not measured (simnmt sti profile --task does): slices and upgrades go in layer order"
    if missed := numbers(lambda turn: turn.execution.latency_s > turn.plan.deadline_s):
        yield f"the deadline was missed in turn {missed}"
    if short := numbers(lambda turn: turn.plan.short_of_io):
        yield f"turn {short}: even 2 bits everywhere would make the processor wait for reads"
    if not all(turn.execution.cold for turn in turns):
        yield "the store's file may have stayed in memory: reads may have been faster than the disk"
