"""What came of a training, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def summary(account: Mapping[str, Any], out: Path) -> str:
    """Lines on a training's training.json: how long it took, and how good its model, in `out`, is."""
    data, done, result = account["data"], account["training"], account["result"]
    manner = "greedy" if result["beam"] == 1 else f"beam {result['beam']}"
    lines = [
        f"trained on {data['train']:,} pairs: {done['step']:,} steps, {done['pairs'] / data['train']:.2f} epochs, "
        f"{done['seconds']:,.0f} s" + (f" ({done['sentences_per_s']:,.0f} sentences/s)" if done["sentences_per_s"] else ""),
        f"best after {result['step']:,} steps: perplexity {result['dev_perplexity']:.2f} on {data['dev']:,} pairs",
        f"on {result['pairs']:,} held-out pairs, {manner}: BLEU {result['bleu']:.1f}, chrF {result['chrf']:.1f} "
        f"({result['sentences_per_s']:,.0f} sentences/s)",
        f"  BLEU {result['bleu_signature']}",
        f"  chrF {result['chrf_signature']}",
        *(f"  {sample['source']} => {sample['translation']}" for sample in result["samples"][:3]),
        f"model: {out}",
    ]
    return "\n".join(lines)
