"""A profile's block `sti`, made of a known disk and processor; for the tests of files, planners and worlds."""

from __future__ import annotations

from typing import Any

import numpy as np

BITS = (2, 3, 4, 5, 6, 32)


def sti_block(
    layers: int = 12,
    heads: int = 12,
    width: int = 768,
    ffn: int = 3072,
    *,
    lengths: tuple[int, ...] = (16, 32),
    bytes_per_s: float = 80e6,
    decoder_layers: int | None = None,
    importance: bool = True,
) -> dict[str, Any]:
    """Content of a synthetic block: a disk of `bytes_per_s`, layers of 4 ms and 1.2 ms a shard at 16 tokens."""
    per_shard = (4 * width * width + 2 * width * ffn) // heads
    crossed = per_shard + 4 * width * width // heads
    widths = np.arange(1, heads + 1)
    block: dict[str, Any] = {
        "kind": "synthetic",
        "model": "made up",
        "fingerprint": "0" * 64,
        "geometry": {"layers": layers, "heads": heads, "width": width, "ffn": ffn},
        "io": {
            "reads": reads(per_shard, bytes_per_s),
            "s_fixed": 1e-4,
            "bytes_per_s": bytes_per_s,
            "r2": 1.0,
            "cold": True,
            "paced_bytes_per_s": bytes_per_s,
        },
        "compute": {
            "lengths": [
                {
                    "length": length,
                    "seconds": (0.004 + 0.0012 * widths * length / 16).tolist(),
                    "embed_s": 0.0004,
                    "head_s": 0.0006,
                }
                for length in lengths
            ],
            "heldout_error": 0.02,
        },
        "threads": 1,
    }
    if decoder_layers is not None:
        block["decoder"] = {
            "layers": decoder_layers,
            "reads": reads(crossed, bytes_per_s),
            "step_s": (0.0004 + 0.0001 * widths).tolist(),
            "output_s": 0.002,
        }
    if importance:
        # The later, the better, and the second slice of the first layer best of all.
        rows = layers + (decoder_layers or 0)
        accuracy = 0.5 + 0.001 * np.arange(rows * heads).reshape(rows, heads)
        accuracy[0, 1 % heads] = 0.9
        block["importance"] = {
            "task": "made.tsv",
            "task_sha256": "1" * 64,
            "examples": 100,
            "base_accuracy": 0.5,
            "base_log_likelihood": -0.69,
            "accuracy": accuracy.tolist(),
            "log_likelihood": np.full((rows, heads), -0.6).tolist(),
        }
    return block


def reads(weights: int, bytes_per_s: float) -> list[dict[str, Any]]:
    """Of shards of so many weights."""
    sizes = {bits: weights * bits // 8 + (0 if bits == 32 else 4 * 2**bits) for bits in BITS}
    times_s = {bits: 1e-4 + size / bytes_per_s for bits, size in sizes.items()}
    return [{"bits": bits, "bytes": sizes[bits], "min_s": times_s[bits], "median_s": times_s[bits]} for bits in BITS]
