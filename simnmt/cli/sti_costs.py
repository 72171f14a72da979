"""Costs for `simnmt sti plan` and `simnmt sti run`: from a profile, from a preset, or from a short measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simnmt.cli.options import profile_path
from simnmt.cli.terminal import say
from simnmt.streaming.errors import StreamingError

if TYPE_CHECKING:
    from simnmt.calibrate.settings import StiSettings
    from simnmt.profile.streaming_cost import StiCost
    from simnmt.streaming.encoder import ElasticEncoder
    from simnmt.streaming.store import ShardStore

REPEATS = 3
"""Repeats of each measurement in a short measurement."""
LENGTH = 16
"""Padded tokens of a short measurement, where the model takes as many."""


@dataclass(frozen=True, slots=True)
class CostSource:
    """Costs and their origin."""

    name: str
    kind: str
    model: str
    """Description of the model that is streamed."""
    cost: StiCost
    warnings: tuple[str, ...] = ()
    """Reasons to doubt the costs."""
    fingerprint: str | None = None
    """Fingerprint of the measured model; None if unknown."""
    pace_bytes_per_s: float | None = None
    """Pace of the measured reads; None for the pace of the disk."""


def read_costs(profile: str) -> CostSource:
    """Return the costs of a profile's block `sti`. Raises `ProfileError`."""
    from simnmt.profile.doubts import profile_doubts
    from simnmt.profile.profile_file import read_profile

    streamed = read_profile(profile_path(profile))
    cost, block = streamed.sti_cost, streamed.sti
    assert block is not None
    doubts = tuple(doubt.message for doubt in profile_doubts(streamed, ["sti"]))
    return CostSource(streamed.name, block.kind, block.model, cost, doubts, block.fingerprint, block.io.paced_bytes_per_s)


def plan_costs(profile: str) -> CostSource:
    """Return the costs of a profile, or of one of the planner's own presets. Raises `ProfileError`."""
    from simnmt.profile.streaming_cost import BERT_BASE
    from simnmt.streaming.plan.plan_summary import PRESETS, board_cost

    if profile not in PRESETS:
        return read_costs(profile)
    board, model = PRESETS[profile]
    return CostSource(profile, "inferred", model, board_cost(board, BERT_BASE))


def run_costs(
    store: ShardStore,
    encoder: ElasticEncoder,
    profile: str | None,
    length: int | None,
    pace_bytes_per_s: float | None,
    threads: int,
) -> CostSource:
    """Return the costs of a profile, or measure them. Raises `StreamingError` for a profile of another model or pace."""
    if profile is None:
        from simnmt.calibrate.settings import StiSettings, lengths_up_to

        lengths = lengths_up_to(store.configuration.positions, [LENGTH]) if length is None else (length,)
        settings = StiSettings(lengths=lengths, pace_bytes_per_s=pace_bytes_per_s, repeats=REPEATS, threads=threads)
        return _measure(store, encoder, settings)
    source = read_costs(profile)
    if source.fingerprint is not None:
        store.check_model(source.fingerprint)
    check_pace(source, pace_bytes_per_s)
    return source


def check_pace(source: CostSource, pace_bytes_per_s: float | None) -> None:
    """Raise `StreamingError` for a pace at which the reads of these costs were not measured; None is any."""
    paced = source.pace_bytes_per_s
    if pace_bytes_per_s is not None and pace_bytes_per_s != paced:
        measured = "as fast as the disk gave" if paced is None else f"at {paced / 1e6:g} MB/s"
        raise StreamingError(
            f"--pace {pace_bytes_per_s / 1e6:g}MB/s: the profile's reads were measured {measured}",
            remedy="profile at this pace, or leave --pace out",
        )


def _measure(store: ShardStore, encoder: ElasticEncoder, settings: StiSettings) -> CostSource:
    from simnmt.calibrate.harness import Silent
    from simnmt.calibrate.streamed_profile import encoder_block
    from simnmt.profile.doubts import sti_doubts

    settings.within(store.configuration.positions)
    say("measuring the disk and the layers, briefly: simnmt sti profile measures them well")
    block = encoder_block(store, encoder, settings, Silent)
    doubts = tuple(doubt.message for doubt in sti_doubts(block))
    return CostSource("this box, just now", block.kind, block.model, block.cost(), doubts, None, settings.pace_bytes_per_s)
