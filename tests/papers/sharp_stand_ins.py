"""Made-up times of the sharp decoder: those that the paper prints."""

from __future__ import annotations

from collections.abc import Mapping

from simnmt.calibrate.sharp_speeds import (
    LADDER,
    PRODUCT_BATCHES,
    SYSTEMS,
    DecoderTime,
    ProductTime,
    Setting,
    SharpSpeeds,
    rung_settings,
)
from simnmt.kernels.beam_search import StageSeconds
from simnmt.papers.sharp.claims import LADDER as PRINTED_LADDER
from simnmt.papers.sharp.claims import SYSTEMS as PRINTED_SYSTEMS

SETTING = Setting(rounds=3)
ROUNDS = (1.0, 1.01, 0.99)
"""Relative times of the rounds, the same for everything that is timed."""
PRODUCTS = {"baseline": 10.0, "int16": 10.0, "embeddings": 7.0, "attention": 5.5, "activations": 5.5, "merge": 4.0}
"""Million multiply-adds by weights per word."""
STAGES = StageSeconds(0.01, 0.06, 0.02, 0.01)
SOURCE_S = 0.004
"""Seconds of the source side per sentence, the same with every decoder."""
SYSTEM_PRODUCTS = {"S1": 4.0, "S2": 8.0, "S3": 7.0, "S4": 8.2, "S5": 12.0, "S6": 12.0, "S7": 60.0, "E1": 16.4, "E2": 24.6}


def decoder(key: str, words_per_s: float, products: float, activations: str = "polynomial", members: int = 1) -> DecoderTime:
    """Return the rounds of one decoder with this mean speed and these million multiply-adds per word."""
    rung = key if key in LADDER else LADDER[-1]
    seconds = tuple(SETTING.tgt_len / words_per_s * factor for factor in ROUNDS)
    settings = rung_settings(SETTING.beam, SETTING.candidates, activations)[rung]  # type: ignore[arg-type]
    source_s = tuple(SOURCE_S * factor for factor in ROUNDS)
    return DecoderTime(key, settings, seconds, source_s, SETTING.tgt_len, 1e6 * products, 2e5, 1e5, 1_000, 0.7, STAGES, members)


def as_published(
    rungs: Mapping[str, float] | None = None,
    table: Mapping[str, float] | None = None,
    systems: Mapping[str, float] | None = None,
    int16_us: float = 40.0,
    level: str | None = "avx512",
) -> SharpSpeeds:
    """Return speeds with the paper's words a second, or those given by key; a 32-bit product takes 100 us at any batch."""
    printed = {row["key"]: float(row["words_per_s"]) for row in PRINTED_LADDER.rows}
    ladder = {
        "table": [decoder(key, (printed | dict(table or {}))[key], PRODUCTS[key], "table") for key in LADDER],
        "polynomial": [decoder(key, (printed | dict(rungs or {}))[key], PRODUCTS[key]) for key in LADDER],
    }
    speeds = {row["key"]: float(row["words_per_s"]) for row in PRINTED_SYSTEMS.rows} | dict(systems or {})
    timed = [decoder(key, speeds[key], SYSTEM_PRODUCTS[key], members=members) for key, (_, members) in SYSTEMS.items()]
    products = [product(batch, cold, int16_us) for batch in PRODUCT_BATCHES for cold in (False, True)]
    nanoseconds = {"library": 10e-9, "table": 1e-9, "polynomial": 0.5e-9}
    return SharpSpeeds(level, SETTING, 80_000, 2**25, ladder, timed, products, nanoseconds)  # type: ignore[arg-type]


def product(batch: int, cold: bool, int16_us: float) -> ProductTime:
    """Return the times of the four products of one batch; all but the 16-bit one are fixed."""
    median_us = {"int16": int16_us, "float32": 80.0, "torch": 100.0, "numpy": 120.0}
    return ProductTime(
        batch, 1024, cold, {name: tuple(1e-6 * us * factor for factor in ROUNDS) for name, us in median_us.items()}
    )
