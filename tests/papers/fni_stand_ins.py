"""Made-up devices and results for the reproductions of faster NMT inference."""

from __future__ import annotations

from dataclasses import replace

from simnmt.papers.fni import published
from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.offline import OFFLINE, Speed, Spread, StepOccupancy
from simnmt.papers.fni.topup_claims import Occupancies, Speeds
from simnmt.profile.cost import CostTable, DecodingCost
from simnmt.profile.decoder_block import DecoderBlock, DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile

BATCH = 16
OVERHEADS = {"step_gap_s_per_sentence": 1e-6, "refill_s_fixed": 0.0, "refill_s_per_sentence": 0.0}
"""Costs of 0 s that count as measured."""


def cost(fixed_ms: float, row_ms: float, encode_ms: float = 0.0, refill_ms: float = 0.0, beam: int = 1) -> DecodingCost:
    """Return the costs of a step of `fixed_ms` and `row_ms` a sentence, measured up to 128 sentences."""
    step = CostTable.of_line((1, 128), (0, 200), 1e-3 * fixed_ms, 1e-3 * row_ms)
    encoder = CostTable.of((1, 128), (1, 200), 1e-3 * encode_ms)
    return DecodingCost(step, encoder, refill_s_fixed=1e-3 * refill_ms, packs=True, beam=beam)


def decoder(costs: DecodingCost, *, device: str = "box", guessed: bool = False, batch: int = BATCH) -> Decoder:
    """Return a device with these costs."""
    return Decoder(device, "a made-up box", "gru", costs.beam, device, "measured", costs, batch, guessed, refills_known=True)


def profile(
    name: str,
    *,
    beam: int = 1,
    most: int = 128,
    box: str = "a made-up box",
    step: bool = True,
    overheads: dict[str, float] = OVERHEADS,
) -> DeviceProfile:
    """Return a profile with costs of batches of up to `most` sentences, or without batch costs if `step` is false."""
    batches = tuple(size for size in (1, 4, 16, 64, 128) if size <= most)
    grid = {"kind": "synthetic", "batch": batches, "beam": beam}
    step_s = CostTable.of_line(batches, (0, 120), 2e-3, 1e-4 * beam).rows
    encode_s = CostTable.of_line(batches, (1, 120), 1e-3, 1e-5, 1e-5, 1e-6).rows
    blocks = {
        "step": grid | {"position": (0, 120), "seconds": step_s},
        "encoder": grid | {"src_len": (1, 120), "seconds": encode_s},
    }
    content = {
        "schema_version": 2,
        "name": name,
        "device": {"name": box},
        "model": {"name": "gru", "vocab": 32_000},
        "length_unit": {"src": "word", "tgt": "word"},
        "valid_range": {"src_len": (0, 200), "tgt_len": (0, 200)},
        "execution": {
            "kind": "synthetic",
            "plane": {"s_per_src_token": 1e-5, "s_per_tgt_token": 2.1e-3, "s_fixed": 1e-3},
            "residual_relative_sd": 0.0,
        },
        "overheads": {name: {"value": value, "kind": "synthetic"} for name, value in overheads.items()},
        "provenance": {"source": "made up", "date": "2026-01-01", "tool": "a test"},
    }
    return DeviceProfile.model_validate(content | (blocks if step else {}))


def as_published() -> dict[tuple[str, str], StepOccupancy]:
    """Return every occupancy as the paper prints it, else as it is stated."""
    measures = {
        (test_set, strategy.key): dict.fromkeys(("full_share", "below_8_share", "mean_active", "steps"), 0.5)
        for test_set in published.SETS
        for strategy in OFFLINE
    }
    for statistic in published.OCCUPANCIES:
        measures[statistic.test_set, statistic.strategy][statistic.measure] = statistic.stated
    return {
        key: StepOccupancy(*key, *(Spread(value, value, value) for value in values.values()), share_by_active=(1.0,))
        for key, values in measures.items()
    }


def tampered(key: tuple[str, str], measure: str, value: float) -> Occupancies:
    """Return the published occupancies with one number changed."""
    occupancies = as_published()
    return occupancies | {key: replace(occupancies[key], **{measure: Spread(value, value, value)})}


PAPER = {
    ("europarl", 1): {"half-empty": 0.89, "maxi": 0.91, "maxi half-empty": 0.95, "immediate": 0.93, "maxi immediate": 1.0},
    ("europarl", 5): {"half-empty": 0.92, "maxi": 0.91, "maxi half-empty": 1.05, "immediate": 0.96, "maxi immediate": 1.1},
    ("opensubtitles", 1): {"half-empty": 0.89, "maxi": 0.9, "maxi half-empty": 0.895, "immediate": 0.95, "maxi immediate": 1.0},
    ("opensubtitles", 5): {"half-empty": 0.95, "maxi": 0.9, "maxi half-empty": 0.9, "immediate": 0.98, "maxi immediate": 1.0},
}
"""Total times over those of mini-batching for which all statements of the paper's text hold."""


def speeds(changed: dict[tuple[str, int, str], float] | None = None) -> Speeds:
    """Return the speeds of `PAPER` for the device `box`; `changed`: other totals by set, beam and strategy."""
    by_key = {}
    for (test_set, beam), totals in PAPER.items():
        for strategy, total in ({"mini": 1.0} | totals).items():
            ours = (changed or {}).get((test_set, beam, strategy), total)
            refills = 40 if "half-empty" in strategy else 400 if "immediate" in strategy else 10
            by_key["box", beam, test_set, strategy] = Speed(
                "box", beam, test_set, strategy, (100 * ours, 102 * ours), 1_000, (refills, refills), 10.0, 1.0, 180.0, 9.0
            )
    return by_key


BATCHES = (1, 8, 32)
FIXED_S, BODY_S, PRODUCT_S, THREE_S = 2e-3, 2.6e-5, 5e-5, 2.5e-5
"""Seconds of a step, and of the parts of a row in it; they sum to the step of `profile` with its gaps at beam 1."""


def fused_profile(
    name: str = "made-up",
    ratios: dict[int, float] | None = None,
    *,
    beam_5_fused: bool = True,
    box: str = "a made-up box",
    times: float = 1.0,
    product_fused: float = 1.0,
) -> DeviceProfile:
    """Return a profile with a step of 2 ms and 0.1 ms a row, a good part of it in the output layer.

    `ratios`: speed-up of the three steps by beam; `times`: seconds of the variants over those of the calibrated steps;
    `product_fused`: seconds of the fused layer's product over those of the plain one.
    """
    by_beam = {1: 4.0, 5: 2.5} if ratios is None else ratios
    variants = [
        _variant(beam, batch, ratio if fused else None, times, product_fused if fused else 1.0)
        for beam, ratio in by_beam.items()
        for batch in BATCHES
        for fused in (False, True)
        if not fused or beam == 1 or beam_5_fused
    ]
    block = DecoderBlock(kind="synthetic", base=DecoderSettings(), src_len=20, repeats=5, variants=tuple(variants))
    return profile(name, box=box).model_copy(update={"decoder": block})


def _variant(beam: int, batch: int, ratio: float | None, times: float, product: float) -> DecoderVariant:
    rows = beam * batch
    parts_s = FIXED_S + BODY_S * rows, product * PRODUCT_S * rows, THREE_S * rows / (ratio or 1.0)
    body_s, product_s, search_s = (times * part_s for part_s in parts_s)
    return DecoderVariant(
        settings=DecoderSettings(beam=beam, fused=ratio is not None),
        batch=batch,
        step_s=body_s + product_s + search_s,
        body_s=body_s,
        product_s=product_s,
        search_s=search_s,
    )
