"""From a scenario to what is deployed: the engine of a device's profile, the recommended policy, and requests with texts."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.configuration import end_tokens
from simnmt.base.errors import InputError, shorten
from simnmt.base.files import read_bounded
from simnmt.base.random_streams import stream
from simnmt.base.suggestions import did_you_mean
from simnmt.batching.class_queue import ONE_CLASS
from simnmt.batching.custom import CustomBatching
from simnmt.experiment.cases import RunPlan, Unit, UsedTarget
from simnmt.experiment.clients import clients_of
from simnmt.experiment.draws import draw, learn_parts
from simnmt.experiment.inputs import GIGABYTE
from simnmt.experiment.targets import Target
from simnmt.live.engine import ONE_BY_ONE, EngineSettings
from simnmt.live.model_engines import ModelEngines
from simnmt.profile.blocks import ProfileError
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.results.places import ALL
from simnmt.results.run_directory import SUMMARY
from simnmt.workload.length_units import Count, unit_and_counter
from simnmt.workload.repeats import first_requests
from simnmt.world.inputs import Clients


def served_target(plan: RunPlan, device: str, workload: str | None = None) -> Target:
    """Return the target of a device at any site, for a workload or for the first one. Raises `InputError` as `target_of`."""
    workload = workload or next(iter(plan.cases))
    uses = [use for use in plan.used_targets if use.case.name == workload]
    return target_of(next((use for use in uses if use.target.device == device), uses[0]), device)


def target_of(unit: Unit | UsedTarget, device: str) -> Target:
    """Return the target of a device that one live engine can be. Raises `InputError` for another."""
    targets = {target.device: target for target in unit.case.targets}
    if device not in targets:
        raise InputError(f"no device is called {device}", remedy=did_you_mean(device, targets))
    if targets[device].streaming is not None:
        raise InputError(f"device {device} streams its model, which can only be simulated")
    if (workers := targets[device].workers) > 1:
        what = f"device {device} has {workers} workers, but a live service has one engine"
        is_service = targets[device].profile.endpoint is not None
        why = "a gateway sends a service one sentence at a time" if is_service else "give the engine more threads"
        raise InputError(what, remedy=f"add --set devices.{device}.workers=1; {why}")
    return targets[device]


def engine_settings(
    target: Target, folder: Path, any_model: bool = False, max_wait_s: tuple[float, ...] = ONE_CLASS, **options: Any
) -> EngineSettings:
    """Return the settings that load the engine which a target's profile was measured with.

    Args:
        target: the device, with its batching or its slots.
        folder: where the architecture of its model is written; it must outlive the engine.
        any_model: accept another engine than that of the profile.
        max_wait_s: of the scenario's classes.
        options: fields of the settings that replace those of the profile, such as `cpus`, or `model` for trained weights.

    Raises `InputError` for a profile of no measured engine, and for what no live engine does.
    """
    engine, name, device = target.profile.engine, target.profile.name, target.device
    batching = ONE_BY_ONE if target.decoding is None else target.decoding.batching
    if isinstance(batching, CustomBatching):
        what = f"the batcher {batching.extension.label} of device {device} can only be simulated"
        raise InputError(what, remedy="serve live with a batching of kind mini, maxi or top_up")
    options.setdefault("batching", batching if target.slots is None else target.slots.limits)
    if engine is None or not engine.architecture:
        if options.get("model") is None:
            what = f"profile {name} of {device} is {target.profile.execution.kind} and holds no engine that could be started"
            raise ProfileError(what, remedy="name a profile that simnmt calibrate measured, or give a model")
        return EngineSettings(**options).with_classes(max_wait_s)
    if options.get("model") is None:
        path = folder / f"{device}.architecture.json"
        path.write_text(json.dumps(engine.architecture), encoding="utf-8")
        options["model"] = str(path)
    settings = EngineSettings(
        options["model"],
        engine.backend,
        engine.device,
        engine.compute_type,
        engine.threads,
        engine.beam,
        engine.fused,
        None if engine.decoder is None else DecoderSettings(**engine.decoder.model_dump(), beam=engine.beam),
    )
    if target.decoder is not None:
        settings = _with_decoder(settings, target.decoder.settings, device)
    if settings.decoder is not None and settings.decoder.restricts:
        what = f"device {device} multiplies a part of the vocabulary, by a bundle that its profile does not hold"
        raise InputError(what, remedy=f"name a decoder of the whole vocabulary in devices.{device}.decoder")
    expected = None if any_model else expected_hash(target)
    return replace(settings, expected_hash=expected, **options).with_classes(max_wait_s)


def models_by_device(given: Sequence[str], devices: Collection[str]) -> dict[str, str]:
    """Return the folders of texts such as `cloud=out/model` by device. Raises `InputError` for an unknown device."""
    models = dict[str, str]()
    for text in given:
        device, _, folder = text.partition("=")
        if device not in devices or not folder:
            raise InputError(f"--model {shorten(text)} names no device", remedy=f"write {next(iter(devices))}=FOLDER")
        models[device] = folder
    return models


def holds_models(plan: RunPlan, device: str) -> bool:
    """Return whether a device of a scenario has a model for each workload."""
    return device in plan.scenario.devices and plan.scenario.devices[device].models is not None


def model_engines(
    plan: RunPlan, device: str, folder: Path, models: Mapping[str, str], any_model: bool, **options: Any
) -> ModelEngines:
    """Return the engines of a device of several models, one for each workload; see `engine_settings`.

    `models`: trained weights, by workload. Raises `InputError`, also for a workload whose name is not that of two languages.
    """
    engines, size_bytes, waits_s = dict[str, EngineSettings](), dict[Hashable, int](), plan.scenario.max_wait_s
    if unknown := [workload for workload in models if workload not in plan.cases]:
        raise InputError(f"no workload {unknown[0]}", remedy=f"one of {', '.join(plan.cases)}")
    for workload in plan.cases:
        if workload.count("-") != 1:
            what = f"workload {workload} names no two languages, which a live server translates"
            raise InputError(what, remedy="rename it, such as de-en")
        if (model := plan.scenario.model_of(device, workload)) is not None and model.multilingual:
            what = f"the multilingual model of {workload} serves several workloads, which can only be simulated"
            raise InputError(what, remedy=f"remove devices.{device}.models.{workload}.multilingual")
        if model is not None and model.pivot is not None:
            raise InputError(f"the requests of {workload} pivot, which can only be simulated")
        target = served_target(plan, device, workload)
        (folder / workload).mkdir()
        weights = {"model": models[workload]} if workload in models else {}
        engines[workload] = engine_settings(target, folder / workload, any_model, waits_s, **options, **weights)
        size_bytes.update((workload, held.size_bytes) for held in target.models.values() if held is not None)
    part = plan.scenario.devices[device]
    memory_bytes = None if part.memory_gb is None or part.evict == "never" else round(GIGABYTE * part.memory_gb)
    return ModelEngines(engines, memory_bytes, size_bytes)


def _with_decoder(settings: EngineSettings, decoder: DecoderSettings, device: str) -> EngineSettings:
    if settings.backend == "sharp":
        return replace(settings, decoder=decoder, beam=decoder.beam)
    if decoder != DecoderSettings(beam=decoder.beam, fused=decoder.fused):
        what = f"device {device} has {decoder.describe()}, which {settings.backend} cannot serve"
        raise InputError(what, remedy=f"leave beam and fused in devices.{device}.decoder")
    return replace(settings, beam=decoder.beam, fused=decoder.fused)


def expected_hash(target: Target) -> str | None:
    """Return the hash of the engine that a device must run; None if its profile names none, or if another decoder is chosen."""
    engine = target.profile.engine
    return None if engine is None or target.decoder is not None else engine.hash


def recommended_policy(directory: Path, unit: Unit) -> str:
    """Return the policy that a run recommends for a workload. Raises `InputError` without one that all networks share."""
    rows = json.loads(read_bounded(directory / SUMMARY)).get("recommendations", [])
    policies = {row["network"]: row["policy"] for row in rows if row["workload"] in (unit.case.name, ALL)}
    recommended = set(policies.values())
    if len(recommended) == 1 and None not in recommended:
        return str(recommended.pop())
    what = ", ".join(f"{policy or 'no policy'} on {network}" for network, policy in policies.items()) or "no policy"
    raise InputError(f"the run recommends {what} for workload {unit.case.name}", path=directory, remedy="give --policy")


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedRequests:
    """The requests of one replication of a unit, as a load generator sends them; shape (requests,)."""

    offsets_s: NDArray[np.float64] | None
    """When each is sent, seconds from the begin; None if the answers set the pace."""
    src_len: NDArray[np.int64]
    tgt_len: NDArray[np.int64]
    """Decode steps, which the model is forced to."""
    texts: list[str]
    """As many words as the model's source tokens without its end mark, at least one; sentences of a scored text."""
    node: NDArray[np.int32]
    """The end node that asks; in a closed loop, that of each client counts instead."""
    clients: Clients | None
    gateway: NDArray[np.int32]
    """Number of the gateway to which it is sent, in the order of the sites."""
    pauses_s: tuple[NDArray[np.float64], ...] = ()
    """By try, seconds from the refusal until the client asks again; infinite after its last one."""
    patience_s: NDArray[np.float64] | None = None
    """Seconds after which the client gives up; None: it waits as long as the load generator."""
    sentence: NDArray[np.int64] | None = None
    """Which sentence it is of, by number; None: each is of its own."""
    document: NDArray[np.int32] | None = None
    """The document that it is a sentence of, which is sent as one list; None if no workload has documents."""
    forced: bool = True
    """Whether models are forced to the target lengths; else they end their translations themselves."""


Texts = Mapping[str, int]
"""Texts to send, with the words of their answers; 0: not known."""


def replayed_requests(unit: Unit, lines: Texts | None = None) -> ReplayedRequests:
    """Draw the requests of a unit, of all its sites together, with texts of random words, or lines of the nearest length.

    Without `lines`, requests of workloads with scores are their sentences, with lengths that are not forced: the scores are of
    translations that end by themselves.
    """
    drawn = draw(unit, learn_parts(unit))
    src_len, tgt_len, node, offsets_s = drawn.truth.src_len, drawn.truth.tgt_len, drawn.truth.node, drawn.issued_s
    assert tgt_len is not None and node is not None
    gateway = np.zeros(len(src_len), np.int32) if drawn.part is None else drawn.part
    units = [part.case.profiles[0].length_unit for part in unit.parts]
    src_end, tgt_end = np.array([end_tokens(one.end_of_sentence) for one in units])[gateway].T
    src_len = np.maximum(src_len + (1 - src_end), 2)
    tgt_len = np.maximum(tgt_len + (1 - tgt_end), 1)
    random = stream(unit.scenario.seed, unit.replication, "words")
    words = [f"w{number}" for number in random.integers(0, 10_000, int((src_len - 1).sum())).tolist()]
    ends = np.cumsum(src_len - 1).tolist()
    texts = [" ".join(words[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    scored, row = [part.case.quality for part in unit.parts if part.case.quality is not None], drawn.truth.text_row
    is_scored = bool(scored) and not lines
    if lines:
        _, count = unit_and_counter(unit.case.table.src_unit)
        texts, counted = _nearest(lines, count, (src_len - 1).tolist(), (tgt_len - 1).tolist())
        src_len = counted + 1
    elif is_scored and row is not None:
        texts = [scored[part].source[at] for part, at in zip(gateway.tolist(), row.tolist(), strict=True)]
    if drawn.truth.sentence is not None:
        texts = [texts[first] for first in first_requests(drawn.truth.sentence).tolist()]
    pauses_s = tuple(column - drawn.truth.transfer_s[0] for column in drawn.retries_s)
    timeouts_s = np.array([clients_of(part).timeout_s for part in unit.parts])
    patience_s = None if np.isinf(timeouts_s).all() else timeouts_s[gateway]
    columns = offsets_s, src_len, tgt_len, texts, node, drawn.clients, gateway, pauses_s, patience_s
    facts: dict[str, Any] = {"document": drawn.truth.document, "sentence": drawn.truth.sentence, "forced": not is_scored}
    return ReplayedRequests(*columns, **facts)


def _nearest(lines: Texts, count: Count, src_len: Sequence[int], tgt_len: Sequence[int]) -> tuple[list[str], NDArray[np.int64]]:
    """Return for each pair of lengths a line of the nearest ones, lines of equal lengths in turn, and the source lengths."""
    by_lengths = dict[tuple[int, int], list[str]]()
    for line, answer in lines.items():
        by_lengths.setdefault((count(line), answer), []).append(line)

    def distance(lengths: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int]:
        return abs(lengths[0] - wanted[0]), abs(lengths[1] - wanted[1])

    pairs = list(zip(src_len, tgt_len, strict=True))
    nearest = {pair: min(by_lengths, key=lambda lengths: distance(lengths, pair)) for pair in set(pairs)}
    turns = {lengths: cycle(of_lengths) for lengths, of_lengths in by_lengths.items()}
    chosen = [nearest[pair] for pair in pairs]
    return [next(turns[lengths]) for lengths in chosen], np.array([length for length, _ in chosen], np.int64)
