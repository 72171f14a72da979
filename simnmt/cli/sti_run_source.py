"""What `simnmt sti run` plans with: a profile's costs, or this box's, measured on the spot; and what it classifies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.elastic.errors import ElasticError

if TYPE_CHECKING:
    from simnmt.costs.sti_cost import StiCost
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.store import ShardStore
    from simnmt.elastic.task import Text

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


def costs(
    store: ShardStore,
    encoder: ElasticEncoder,
    profile: str | None,
    length: int | None,
    pace_bytes_per_s: float | None,
    threads: int,
) -> RunSource:
    """The profile's, or measured now; errors of both, and `ElasticError` where the profile is another model's or pace's."""
    if profile is None:
        return _measured(store, encoder, LENGTH if length is None else length, pace_bytes_per_s, threads)
    from simnmt import shipped
    from simnmt.costs import profile_doubts, read_profile

    device_profile = read_profile(shipped.find("calibration", profile) if profile.startswith("@") else profile)
    cost = device_profile.sti_cost
    block = device_profile.sti
    assert block is not None
    if block.fingerprint is not None:
        store.check_model(block.fingerprint)
    paced = block.io.paced_bytes_per_s
    if pace_bytes_per_s is not None and pace_bytes_per_s != paced:
        measured = "as fast as the disk gave" if paced is None else f"at {paced / 1e6:g} MB/s"
        raise ElasticError(
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
    from simnmt.calibrate.sti.encoder_block import encoder_block, packed_shards
    from simnmt.calibrate.sti.settings import StiSettings
    from simnmt.calibrate.sti.shard_reads import check_bits
    from simnmt.costs.doubts import sti_doubts

    check_bits(store)
    settings = StiSettings(lengths=(length,), pace_bytes_per_s=pace_bytes_per_s, repeats=REPEATS, threads=threads)
    settings.within(store.configuration.positions)
    print("measuring the disk and the layers, briefly: simnmt sti profile does it well", file=sys.stderr)
    block = encoder_block(store, encoder, packed_shards(store), settings, lambda done, total, what: None)
    doubts = tuple(doubt.message for doubt in sti_doubts(block))
    return RunSource("this box, just now", block.kind, block.cost(), length, pace_bytes_per_s, doubts)


def texts_of(texts: Sequence[str] | None, task: Path | None, turns: int) -> tuple[Text, ...]:
    """Those given, or a task's first; raises `ElasticError` for both."""
    if texts and task is not None:
        raise ElasticError("--text and --task: both say what is classified", remedy="give one of them")
    if task is None:
        return tuple(texts or ())
    from simnmt.elastic.task import read_task

    return read_task(task).texts[:turns]
