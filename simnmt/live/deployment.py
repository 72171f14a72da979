"""From a scenario to what is deployed: the engine of a device's profile, and the requests with their texts."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from simnmt.base.configuration import end_tokens
from simnmt.base.random_streams import stream
from simnmt.batching import Batching
from simnmt.experiment.draws import draw, learn
from simnmt.experiment.inputs import Target, Unit
from simnmt.live.engine_process import ONE_BY_ONE, EngineSettings
from simnmt.profile.blocks import ProfileError


def engine_settings(target: Target, folder: Path, **placing: object) -> EngineSettings:
    """Return the settings that load the engine which a target's profile was measured with.

    Args:
        target: the device, with its batching.
        folder: where the architecture of its model is written.
        placing: further fields of the settings, such as `cpus`.

    Raises `ProfileError` for a profile of no measured engine.
    """
    engine, name = target.profile.engine, target.profile.name
    if engine is None or not engine.architecture:
        remedy = "name a profile that simnmt calibrate measured on such a box"
        raise ProfileError(f"profile {name} of {target.device} holds no engine that could be started", remedy=remedy)
    path = folder / f"{target.device}.architecture.json"
    path.write_text(json.dumps(engine.architecture), encoding="utf-8")
    return EngineSettings(
        str(path),
        engine.backend,
        engine.device,
        engine.compute_type,
        engine.threads,
        engine.beam,
        engine.fused,
        batching=batching_of(target),
        **placing,  # type: ignore[arg-type]
    )


def batching_of(target: Target) -> Batching:
    """Return how a target batches; one by one without batching in the scenario."""
    return ONE_BY_ONE if target.decoding is None else target.decoding.batching


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedRequests:
    """The requests of one replication of a unit, as a load generator sends them; shape (requests,)."""

    offsets_s: NDArray[np.float64] | None
    """When each is sent, seconds from the begin; None if the answers set the pace."""
    src_len: NDArray[np.int64]
    tgt_len: NDArray[np.int64]
    """Decode steps, which the model is forced to."""
    texts: list[str]
    """As many words as the model's source tokens without its end mark, at least one."""


def replayed_requests(unit: Unit) -> ReplayedRequests:
    """Draw the requests of a unit, with texts of random words."""
    with TemporaryDirectory(prefix="simnmt-", ignore_cleanup_errors=True) as folder:
        drawn = draw(replace(unit, folder=Path(folder)), learn(unit))
        assert drawn.truth.tgt_len is not None
        src_len, tgt_len = np.array(drawn.truth.src_len[:]), np.array(drawn.truth.tgt_len[:])
        offsets_s = None if drawn.issued_s is None else np.array(drawn.issued_s[:])
    src_end, tgt_end = end_tokens(unit.case.profiles[0].length_unit.end_of_sentence)
    src_len = np.maximum(src_len + (1 - src_end), 2)
    tgt_len = np.maximum(tgt_len + (1 - tgt_end), 1)
    random = stream(unit.scenario.seed, unit.replication, "words")
    words = [f"w{number}" for number in random.integers(0, 10_000, int((src_len - 1).sum())).tolist()]
    ends = np.cumsum(src_len - 1).tolist()
    texts = [" ".join(words[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    return ReplayedRequests(offsets_s, src_len, tgt_len, texts)
