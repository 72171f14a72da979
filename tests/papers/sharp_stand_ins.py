"""Made-up times of the sharp decoder: those that the paper prints."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from simnmt.calibrate.sharp_speeds import SYSTEMS, Setting, SharpSpeeds, rung_settings
from simnmt.papers.sharp.claims import LADDER as PRINTED_LADDER
from simnmt.papers.sharp.claims import RUNGS
from simnmt.papers.sharp.claims import SYSTEMS as PRINTED_SYSTEMS

SETTING = Setting(rounds=3)
ROUNDS = np.array([1.0, 1.01, 0.99])
"""Relative times of the rounds, the same for everything that is timed."""
PRODUCTS = {"baseline": 10.0, "int16": 10.0, "embeddings": 7.0, "attention": 5.5, "activations": 5.5, "merge": 4.0}
"""Million multiply-adds by weights per word."""
SYSTEM_PRODUCTS = {"S1": 4.0, "S2": 8.0, "S3": 7.0, "S4": 8.2, "S5": 12.0, "S6": 12.0, "S7": 60.0, "E1": 16.4, "E2": 24.6}
SOURCE_S = 0.004
"""Seconds of the source side per sentence, the same with every decoder."""
COUNTED = {"source_recurrent": 2e5, "attention": 1e5, "activations": 1_000, "distinct_share": 0.7}


def as_published(
    rungs: Mapping[str, float] | None = None,
    table: Mapping[str, float] | None = None,
    systems: Mapping[str, float] | None = None,
    int16_us: float = 40.0,
) -> SharpSpeeds:
    """Return speeds with the paper's words a second, or those given by key; a library's product takes 100 us at any batch."""
    printed = {row["key"]: float(row["words_per_s"]) for row in (*PRINTED_LADDER.rows, *PRINTED_SYSTEMS.rows)}
    by_table = {f"{rung}, table": (table or {}).get(rung, printed[rung]) for rung in ("activations", "merge")}
    words_per_s = printed | dict(rungs or {}) | dict(systems or {}) | by_table
    settings = rung_settings(SETTING.beam, SETTING.candidates, "polynomial")
    counts = {}
    for decoder in words_per_s:
        rung = decoder.removesuffix(", table")
        change = {"activations": "table"} if rung != decoder else {}
        products = 1e6 * (PRODUCTS | SYSTEM_PRODUCTS)[rung]
        counts[decoder] = COUNTED | {
            "settings": settings.get(rung, settings[RUNGS[-1]]).model_copy(update=change),
            "members": SYSTEMS.get(decoder, ("", 1))[1],
            "products": products,
            "multiply_adds": products + COUNTED["source_recurrent"] + COUNTED["attention"],
        }  # fmt: skip
    product_us = {"int16": int16_us, "float32": 80.0, "torch": 100.0, "numpy": 120.0}
    activation_ns = {"library": 10.0, "table": 1.0, "polynomial": 0.5}
    return SharpSpeeds(
        level="avx512",
        setting=SETTING,
        vocab=80_000,
        cache_bytes=2**25,
        products=pd.DataFrame(
            {
                (name, batch, cold): 1e-6 * us * ROUNDS
                for batch in SETTING.product_batches
                for cold in (False, True)
                for name, us in product_us.items()
            }
        ),
        activations=pd.DataFrame({method: 1e-9 * ns * ROUNDS for method, ns in activation_ns.items()}),
        sentences=pd.DataFrame({decoder: SETTING.tgt_len / speed * ROUNDS for decoder, speed in words_per_s.items()}),
        sources=pd.DataFrame(dict.fromkeys(words_per_s, SOURCE_S * ROUNDS)),
        counts=pd.DataFrame.from_dict(counts, orient="index"),
    )
