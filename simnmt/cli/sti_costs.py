"""The costs that `simnmt sti run` plans with, from a profile or measured on the spot, and the texts that it classifies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.streaming.errors import StreamingError

if TYPE_CHECKING:
    from simnmt.profile.streaming_cost import StiCost
    from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
    from simnmt.streaming.encoder.task import Text
    from simnmt.streaming.store.shard_store import ShardStore

REPEATS = 3
"""Of what is measured on the spot."""
LENGTH = 16


@dataclass(frozen=True, slots=True)
class RunSource:
    """Costs and where they come from."""

    name: str
    kind: str
    cost: StiCost
    length: int
    pace_bytes_per_s: float | None
    warnings: tuple[str, ...]
    """What makes the costs doubtful."""


def run_costs(
    store: ShardStore,
    encoder: ElasticEncoder,
    profile: str | None,
    length: int | None,
    pace_bytes_per_s: float | None,
    threads: int,
) -> RunSource:
    """The profile's, or measured now; errors of both, and `StreamingError` where the profile is another model's or pace's."""
    if profile is None:
        return _measured(store, encoder, LENGTH if length is None else length, pace_bytes_per_s, threads)
    from simnmt.base import shipped_files
    from simnmt.profile.doubts import profile_doubts
    from simnmt.profile.profile_file import read_profile

    device_profile = read_profile(shipped_files.find("calibration", profile) if profile.startswith("@") else profile)
    cost = device_profile.sti_cost
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
    return RunSource(
        device_profile.name,
        block.kind,
        cost,
        max(cost.comp_s) if length is None else length,
        paced,
        tuple(doubt.message for doubt in profile_doubts(device_profile, ["sti"])),
    )


def _measured(
    store: ShardStore, encoder: ElasticEncoder, length: int, pace_bytes_per_s: float | None, threads: int
) -> RunSource:
    from simnmt.calibrate.settings import StiSettings
    from simnmt.calibrate.streaming.encoder_block import check_bits, encoder_block, packed_shards
    from simnmt.profile.doubts import sti_doubts

    check_bits(store)
    settings = StiSettings(lengths=(length,), pace_bytes_per_s=pace_bytes_per_s, repeats=REPEATS, threads=threads)
    settings.within(store.configuration.positions)
    print("measuring the disk and the layers, briefly: simnmt sti profile does it well", file=sys.stderr)
    block = encoder_block(store, encoder, packed_shards(store), settings, lambda done, total, what: None)
    doubts = tuple(doubt.message for doubt in sti_doubts(block))
    return RunSource("this box, just now", block.kind, block.cost(), length, pace_bytes_per_s, doubts)


def run_texts(texts: Sequence[str] | None, task: Path | None, turns: int) -> tuple[Text, ...]:
    """Those given, or a task's first; raises `StreamingError` for both."""
    if texts and task is not None:
        raise StreamingError("--text and --task: both say what is classified", remedy="give one of them")
    if task is None:
        return tuple(texts or ())
    from simnmt.streaming.encoder.task import read_task

    return read_task(task).texts[:turns]
