"""Assemble the device profile of a streamed model: a new profile, or block `sti` added to an existing one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from simnmt.base import VERSION
from simnmt.base.configuration import EndOfSentence
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import BoxDescription, describe
from simnmt.calibrate.processor_use import pinned
from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.calibrate.streaming.layer_times import Progress
from simnmt.calibrate.streaming.profile_blocks import (
    check_classifier,
    check_translator,
    classifier_blocks,
    classifier_importance,
    translator_blocks,
)
from simnmt.nmt.architecture import ARCHITECTURES, TransformerArchitecture, read_architecture
from simnmt.nmt.devices import cpu_name
from simnmt.nmt.engine import EngineAccount
from simnmt.profile.blocks import Execution
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.origin import Conditions, LengthUnit, ValidRange
from simnmt.profile.streaming_block import StiBlock
from simnmt.workload.length_units import unit_of_content

if TYPE_CHECKING:
    from simnmt.streaming.store import ShardStore
    from simnmt.streaming.texts import Task

TOOL = f"simnmt sti profile, simnmt {VERSION}"
ANY_LENGTH = 10**6
"""Bound of a classifier's target length, which costs no time."""
UNIT = "subword"
"""Unit of models without a sentencepiece model that could name it, as in `simnmt calibrate`."""


@dataclass(frozen=True, slots=True)
class ProfileNames:
    """Names of profile and box, and the unit of the lengths."""

    profile: str
    device: str | None = None
    """Name of the box; None: the processor and its threads."""
    unit: str | None = None
    """Unit of both sides; None: a piece of the store's sentencepiece model, named by its content, else `UNIT`. A profile that
    gets the block keeps its unit, and another unit is refused."""


def profile_store(
    store: ShardStore,
    settings: StiSettings,
    named: ProfileNames,
    journal: str | os.PathLike[str],
    *,
    task: Task | None = None,
    into: DeviceProfile | None = None,
    progress: Progress,
) -> tuple[DeviceProfile, list[str]]:
    """Measure a sharded classifier on this box; return the profile and its warnings.

    `task`: measure importance too, and keep it in `journal` meanwhile. `into`: the profile that gets the block. Raises
    `CalibrationError`, `StreamingError`, `StoreError`.
    """
    check_classifier(store, settings, task)
    pieces = _pieces_unit(store)
    if into is not None:
        if into.plane.s_per_tgt_token > 0.0:
            _refuse_into(into, "a model that translates", "a classifier")
        _check_unit(into, (into.length_unit.src,), named.unit, pieces)
    name, configuration = store.index.origin or store.kind, store.configuration
    weights: Literal["random", "checkpoint"] = "random" if store.index.random else "checkpoint"
    account = _account(settings, name, asdict(configuration), weights, max(2, configuration.classes))
    with _watched(settings) as watch:
        sti, execution = classifier_blocks(store, settings, progress)
    if task is not None:
        importance = classifier_importance(store, task, journal, progress, threads=settings.threads)
        sti = sti.model_copy(update={"importance": importance})
    ranges = ValidRange(src_len=(1, store.configuration.positions), tgt_len=(0, ANY_LENGTH))
    return _assemble_profile(sti, execution, account, watch, named, into, ranges, named.unit or pieces or UNIT)


def profile_model(
    model: str,
    folder: str | os.PathLike[str],
    settings: StiSettings,
    named: ProfileNames,
    *,
    into: DeviceProfile | None = None,
    progress: Progress,
) -> tuple[DeviceProfile, list[str]]:
    """Measure a translating Transformer, by name or file, with random weights, as if streamed from the disk of `folder`.

    Returns the profile and its warnings. Raises `NmtError` for an unknown model, `CalibrationError`, `DiskError`.
    """
    architecture = _transformer(model)
    check_translator(architecture, settings)
    if into is not None:
        if into.plane.s_per_tgt_token == 0.0:
            _refuse_into(into, "a classifier", "a model that translates")
        _check_unit(into, (into.length_unit.src, into.length_unit.tgt), named.unit)
    account = _account(settings, model, architecture.model_dump(mode="json"), "random", architecture.vocab)
    with _watched(settings) as watch:
        sti, execution = translator_blocks(architecture, folder, settings, progress)
    ranges = ValidRange(src_len=(1, architecture.max_positions), tgt_len=(1, architecture.max_positions))
    return _assemble_profile(sti, execution, account, watch, named, into, ranges, named.unit or UNIT)


def _pieces_unit(store: ShardStore) -> str | None:
    """Return the unit of a store's sentencepiece model; None for a store without one, whose unit is not known."""
    from simnmt.streaming.texts import PIECES_FILE

    pieces = store.beside().get(PIECES_FILE)
    return None if pieces is None else unit_of_content(pieces)


def _refuse_into(into: DeviceProfile, known: str, measured: str) -> None:
    what = f"--into: {into.name} is the profile of {known}, the streamed model is {measured}"
    raise CalibrationError(what, remedy="leave --into out, or name a profile of the same model")


def _check_unit(into: DeviceProfile, known: Sequence[str], given: str | None, pieces: str | None = None) -> None:
    """Raise `CalibrationError` if the costs of a profile are per token of another unit: they are not converted.

    `known`: units of the profile; `given`: unit of --unit; `pieces`: unit of the store. None: not given, or not known.
    """
    unit = given or pieces
    others = [other for other in known if other != unit]
    if unit is not None and others:
        what = f"--into: {into.name} has costs per token of unit {others[0]}, this model is measured in {unit}"
        remedy = f"leave --into out, or give --unit {shlex.quote(others[0])} if both are the same tokens"
        raise CalibrationError(what, remedy="leave --unit out, or --into" if given else remedy)


def _transformer(model: str) -> TransformerArchitecture:
    if model not in ARCHITECTURES and not Path(model).is_file():
        remedy = did_you_mean(model, ARCHITECTURES, "name marian, or a file with the sizes of a Transformer")
        raise CalibrationError(f"--model: no model called {model}", remedy=remedy)
    architecture = ARCHITECTURES[model] if model in ARCHITECTURES else read_architecture(model)
    if not isinstance(architecture, TransformerArchitecture):
        raise CalibrationError(f"--model: {model} is no Transformer: it has no heads to cut it by", remedy="name marian")
    return architecture


@dataclass(slots=True)
class _Watch:
    """The box, and its conditions after the measurement."""

    box: BoxDescription
    conditions: Conditions = field(default_factory=Conditions)


@contextmanager
def _watched(settings: StiSettings) -> Iterator[_Watch]:
    watch = _Watch(describe())
    usable = watch.box.usable_cpus
    if usable and settings.threads > usable:
        raise CalibrationError(f"--threads: {settings.threads} where {usable} CPUs may be used", remedy="give no more")
    before = profile_assembly.state(watch.box)
    with pinned(settings.threads) as cpus:
        yield watch
    after = profile_assembly.state(describe())
    watch.conditions = profile_assembly.conditions_block([before], after, None, cpus)


def _account(
    settings: StiSettings, model: str, architecture: Mapping[str, object], weights: Literal["random", "checkpoint"], vocab: int
) -> EngineAccount:
    return EngineAccount(
        backend="simnmt",
        model=model,
        architecture=dict(architecture),
        weights=weights,
        compute_type="float32",
        device="cpu",
        device_name=cpu_name(),
        threads=settings.threads,
        versions={"torch": version("torch")},
        vocab=vocab,
    )


def _assemble_profile(
    sti: StiBlock,
    execution: Execution,
    account: EngineAccount,
    watch: _Watch,
    named: ProfileNames,
    into: DeviceProfile | None,
    ranges: ValidRange,
    unit: str,
) -> tuple[DeviceProfile, list[str]]:
    name = watch.box.board or watch.box.cpu_model
    account = replace(account, device_name=name) if name else account
    sti = sti.model_copy(update={"device_name": account.device_name})
    if into is not None:
        profile = profile_assembly.completed(
            into, {"sti": sti}, watch.conditions, ["sti"], name=named.profile, device_name=named.device, tool=TOOL
        )
    else:
        # A classifier emits nothing, and its lengths count all tokens that it reads.
        end: EndOfSentence = "both" if ranges.tgt_len[0] > 0 else "none"
        profile = profile_assembly.new_profile(
            named.profile,
            account.model,
            account,
            watch.box,
            LengthUnit(src=unit, tgt=unit, end_of_sentence=end),
            {"valid_range": ranges, "execution": execution, "sti": sti, "conditions": watch.conditions},
            device_name=named.device,
            source=f"{account.model}, {profile_assembly.describe_weights(account)}, streamed in shards",
            tool=TOOL,
        )
    remarks = profile_assembly.remarks(watch.conditions, None, on_cpu=True)
    return profile, [*(doubt.message for doubt in profile_doubts(profile)), *remarks]


def journal_beside(out: Path) -> Path:
    """Return the path of the journal of an importance measurement."""
    return Path(f"{out}.importance.jsonl")
