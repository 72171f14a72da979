"""`simnmt sti profile`: what streaming a model takes of this box's disk and processor, and what its shards are worth."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.cli.terminal import warn

if TYPE_CHECKING:
    from simnmt.calibrate.sti.encoder_block import Progress
    from simnmt.calibrate.sti.measured_profile import Named
    from simnmt.calibrate.sti.settings import StiSettings
    from simnmt.costs import DeviceProfile


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
    from simnmt.calibrate.preconditions import refuse_unwritable
    from simnmt.calibrate.sti.measured_profile import Named, journal_beside
    from simnmt.calibrate.sti.settings import StiSettings
    from simnmt.cli.progress import bar
    from simnmt.costs import profile_summary, read_profile, write_profile
    from simnmt.files import refuse_replacing

    if (store is None) == (model is None):
        raise typer.BadParameter("name a shard store, or the sizes of a translator with --model, and not both")
    if store is None and task is not None:
        raise typer.BadParameter("random weights are worth nothing on a task", param_hint="--task")
    if store is not None and folder is not None:
        raise typer.BadParameter("a store is read where it lies", param_hint="--folder")
    refuse_replacing(out, task)
    refuse_unwritable(out, "--out")
    before = None if into is None else read_profile(_found(into))
    given: dict[str, Any] = {"repeats": repeats, "threads": threads}
    settings = StiSettings(
        lengths=_lengths(lengths) if lengths is not None else ((16, 32) if model is None else (8, 16, 32, 64)),
        pace_bytes_per_s=None if pace_mb is None else 1e6 * pace_mb,
        **{key: value for key, value in given.items() if value is not None},
    )
    named = Named(name or out.stem, device_name, unit)
    with bar() as move:
        if store is not None:
            found, said = _of_store(store, task, settings, named, out, before, move)
        else:
            from simnmt.calibrate.sti.measured_profile import profile_model

            assert model is not None
            found, said = profile_model(model, folder or out.absolute().parent, settings, named, into=before, progress=move)
    write_profile(out, found)
    if task is not None:
        journal_beside(out).unlink(missing_ok=True)
    for warning in said:
        warn(warning)
    print(f"written to {out}", file=sys.stderr)
    if as_json:
        print(json.dumps(profile_summary.as_json(found), indent=1, allow_nan=False))
        return
    facts = [(what, told) for what, told in profile_summary.facts(found) if what.startswith(("sti", "execution", "device"))]
    width = max(len(what) for what, _ in facts)
    print("\n".join(f"{what.ljust(width)}  {told}" for what, told in facts))


def _of_store(
    store: Path,
    task: Path | None,
    settings: StiSettings,
    named: Named,
    out: Path,
    before: DeviceProfile | None,
    progress: Progress,
) -> tuple[DeviceProfile, list[str]]:
    from simnmt.calibrate.sti.measured_profile import journal_beside, profile_store
    from simnmt.elastic.store import ShardStore
    from simnmt.elastic.task import read_task
    from simnmt.errors import InputError

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


def _lengths(said: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in said.split(","))
    except ValueError:
        raise typer.BadParameter(f"{said} are no lengths: give whole numbers, as in 16,32", param_hint="--lengths") from None


def _found(profile: Path) -> Path:
    from simnmt import shipped

    return shipped.find("calibration", str(profile)) if str(profile).startswith("@") else profile
