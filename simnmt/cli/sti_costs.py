"""Costs that `simnmt sti plan` and `run` plan with, from a profile, a preset or a brief measurement; texts of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.cli.option_values import profile_path
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.profile_file import read_profile
from simnmt.streaming.errors import StreamingError

if TYPE_CHECKING:
    from simnmt.profile.device_profile import DeviceProfile
    from simnmt.profile.streaming_cost import StiCost
    from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
    from simnmt.streaming.encoder.task import Text
    from simnmt.streaming.store.shard_store import ShardStore

REPEATS = 3
"""Of what is measured on the spot."""
LENGTH = 16


@dataclass(frozen=True, slots=True)
class CostSource:
    """Costs, and where they come from."""

    name: str
    kind: str
    model: str
    """Description of the streamed model."""
    cost: StiCost
    warnings: tuple[str, ...] = ()
    """Reasons to doubt the costs."""


def read_costs(profile: str) -> CostSource:
    """Read block `sti` of a profile, or one of the planner's presets. Raises `ProfileError`."""
    from simnmt.streaming.plan.presets import preset

    shipped = preset(profile)
    if shipped is not None:
        return CostSource(profile, shipped.kind, shipped.model, shipped.cost)
    return _profile_costs(read_profile(profile_path(profile)))


def _profile_costs(profile: DeviceProfile) -> CostSource:
    cost, block = profile.sti_cost, profile.sti
    assert block is not None
    doubts = tuple(doubt.message for doubt in profile_doubts(profile, ["sti"]))
    return CostSource(profile.name, block.kind, block.model, cost, doubts)


def run_costs(
    store: ShardStore,
    encoder: ElasticEncoder,
    profile: str | None,
    length: int | None,
    pace_bytes_per_s: float | None,
    threads: int,
) -> tuple[CostSource, int, float | None]:
    """Return the costs of a profile, or of a brief measurement, with the padded tokens and the pace of reads.

    Raises the errors of both, and `StreamingError` for a profile of another model or pace.
    """
    if profile is None:
        tokens = LENGTH if length is None else length
        return _measured(store, encoder, tokens, pace_bytes_per_s, threads), tokens, pace_bytes_per_s
    device_profile = read_profile(profile_path(profile))
    source = _profile_costs(device_profile)
    block = device_profile.sti
    assert block is not None
    if block.fingerprint is not None:
        store.check_model(block.fingerprint)
    paced = block.io.paced_bytes_per_s
    if pace_bytes_per_s is not None and pace_bytes_per_s != paced:
        measured = "as fast as the disk gave" if paced is None else f"at {paced / 1e6:g} MB/s"
        raise StreamingError(
            f"--pace-mb {pace_bytes_per_s / 1e6:g}: the profile's reads were measured {measured}",
            remedy="profile at this pace, or leave --pace-mb out",
        )
    return source, max(source.cost.comp_s) if length is None else length, paced


def _measured(
    store: ShardStore, encoder: ElasticEncoder, length: int, pace_bytes_per_s: float | None, threads: int
) -> CostSource:
    from simnmt.calibrate.settings import StiSettings
    from simnmt.calibrate.streaming.encoder_block import check_bits, encoder_block, packed_shards
    from simnmt.profile.doubts import sti_doubts

    check_bits(store)
    settings = StiSettings(lengths=(length,), pace_bytes_per_s=pace_bytes_per_s, repeats=REPEATS, threads=threads)
    settings.within(store.configuration.positions)
    print("measuring the disk and the layers, briefly: simnmt sti profile does it well", file=sys.stderr)
    block = encoder_block(store, encoder, packed_shards(store), settings, lambda done, total, what: None)
    doubts = tuple(doubt.message for doubt in sti_doubts(block))
    return CostSource("this box, just now", block.kind, block.model, block.cost(), doubts)


def run_texts(texts: Sequence[str] | None, task: Path | None, turns: int) -> tuple[Text, ...]:
    """Those given, or a task's first; raises `StreamingError` for both."""
    if texts and task is not None:
        raise StreamingError("--text and --task: both say what is classified", remedy="give one of them")
    if task is None:
        return tuple(texts or ())
    from simnmt.streaming.encoder.task import read_task

    return read_task(task).texts[:turns]
