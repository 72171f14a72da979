"""Devices and results of the top-up reproduction that were never measured."""

from __future__ import annotations

from simnmt.papers.fni import topup_published
from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.offline import OFFLINE, Speed, StepOccupancy
from simnmt.papers.fni.topup_claims import Occupancies
from simnmt.profile.batch_cost import BatchCost, DecodingCost, LinearSurface
from simnmt.profile.device_profile import DeviceProfile

BATCH = 16
OVERHEADS = {"step_gap_s_per_sentence": 1e-6, "refill_s_fixed": 0.0, "refill_s_per_sentence": 0.0}
"""A measured 0 s is not an unmeasured one."""


def cost(fixed_ms: float, row_ms: float, encode_ms: float = 0.0, refill_ms: float = 0.0, beam: int = 1) -> DecodingCost:
    """A step of `fixed_ms` and `row_ms` a sentence, measured up to 128 sentences."""
    step = BatchCost(LinearSurface(1e-3 * fixed_ms, 1e-3 * row_ms, 0.0, 0.0), (1, 128), (0, 200))
    encoder = BatchCost(LinearSurface(1e-3 * encode_ms, 0.0, 0.0, 0.0), (1, 128), (1, 200))
    return DecodingCost(step, encoder, refill_s_fixed=1e-3 * refill_ms, packs=True, beam=beam)


def decoder(own: DecodingCost, *, device: str = "box", guessed: bool = False, batch: int = BATCH) -> Decoder:
    """One device."""
    return Decoder(device, "a made-up box", "gru", own.beam, device, "measured", own, batch, guessed, True, True)


def profile(
    name: str, *, beam: int = 1, most: int = 128, box: str = "a made-up box", step: bool = True, refills: bool = True
) -> DeviceProfile:
    """A profile that tells of batches of up to `most`, or, without `step`, of none."""
    batches = tuple(size for size in (1, 4, 16, 64, 128) if size <= most)
    grid = {"kind": "synthetic", "form": "linear", "batch": batches, "beam": beam}
    blocks = {
        "step": grid
        | {
            "position": (0, 120),
            "coefficients": {"s_fixed": 2e-3, "s_per_row": 1e-4 * beam, "s_per_position": 0.0, "s_per_row_position": 0.0},
        },
        "encoder": grid
        | {
            "src_len": (1, 120),
            "coefficients": {"s_fixed": 1e-3, "s_per_row": 1e-5, "s_per_src_token": 1e-5, "s_per_row_src_token": 1e-6},
        },
    }
    content = {
        "schema_version": 1,
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
        "overheads": {name: {"value": value, "kind": "synthetic"} for name, value in (OVERHEADS if refills else {}).items()},
        "provenance": {"source": "made up", "date": "2026-01-01", "tool": "a test"},
    }
    return DeviceProfile.model_validate(content | (blocks if step else {}))


def as_published() -> dict[tuple[str, str], StepOccupancy]:
    """Every occupancy as the paper prints it, else as it is stated."""
    found = {
        (test_set, each.key): dict.fromkeys(("full_share", "below_8_share", "mean_active", "steps"), (0.5, 0.5, 0.5))
        for test_set in topup_published.SETS
        for each in OFFLINE
    }
    for said in topup_published.OCCUPANCIES:
        value = said.stated
        found[said.test_set, said.strategy][said.measure] = (value, value, value)
    return {key: StepOccupancy(*key, **values, share_by_active=(1.0,)) for key, values in found.items()}


def tampered(key: tuple[str, str], measure: str, value: float) -> Occupancies:
    """The same with one number changed."""
    from dataclasses import replace

    found = as_published()
    found[key] = replace(found[key], **{measure: (value, value, value)})
    return found


PAPER = {
    ("europarl", 1): {"half-empty": 0.89, "maxi": 0.91, "maxi half-empty": 0.95, "immediate": 0.93, "maxi immediate": 1.0},
    ("europarl", 5): {"half-empty": 0.92, "maxi": 0.91, "maxi half-empty": 1.05, "immediate": 0.96, "maxi immediate": 1.1},
    ("opensubtitles", 1): {"half-empty": 0.89, "maxi": 0.9, "maxi half-empty": 0.895, "immediate": 0.95, "maxi immediate": 1.0},
    ("opensubtitles", 5): {"half-empty": 0.95, "maxi": 0.9, "maxi half-empty": 0.9, "immediate": 0.98, "maxi immediate": 1.0},
}
"""Total times over mini-batching's such that everything the paper's text says holds."""


def speeds(changed: dict[tuple[str, int, str], float] | None = None) -> dict[tuple[str, int, str, str], Speed]:
    """`PAPER` for the device `box`; `changed`: by set, beam and strategy another total. Who tops up refills oftener."""
    found = {}
    for (test_set, beam), totals in PAPER.items():
        for strategy, total in ({"mini": 1.0} | totals).items():
            own = (changed or {}).get((test_set, beam, strategy), total)
            refills = 40 if "half-empty" in strategy else 400 if "immediate" in strategy else 10
            found["box", beam, test_set, strategy] = Speed(
                "box", beam, test_set, strategy, (100 * own, 102 * own), 1_000, (refills, refills), 10.0, 1.0, 180.0, 9.0
            )
    return found
