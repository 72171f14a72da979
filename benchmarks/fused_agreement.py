"""Whether fusing or batching changes what a trained model says (FNI-11):
`python -m benchmarks.fused_agreement --model DIR --text FILE --json`.

The first lines of a text are translated plainly in mini-batches, and then by all combinations of the fused output layer and
top-up batching. Outputs may differ where two candidates lie closer than 1e-4; every such case is listed with its gap, and so is
every difference without this excuse.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from simnmt.base.errors import SimnmtError
from simnmt.batching import half_empty, mini, top_up
from simnmt.nmt.agreement import agreement
from simnmt.nmt.slot_decoder import decode_batched
from simnmt.nmt.translation import Translator, read_lines


def compared(translator: Translator, lines: Sequence[str], beam: int, batch: int) -> list[dict[str, Any]]:
    """One row per combination; the first is what the others are compared with."""
    model = translator.model
    sources = [source for source in translator.source.encode(list(lines)) if len(source) > 1]
    most = [2 * len(source) + 10 for source in sources]
    base, rows = None, []
    for fused in (False, True):
        for batching in (mini(batch), top_up(batch, half_empty(batch))):
            run = decode_batched(model, sources, batching, beam=beam, max_len=most, fused=fused)
            base = base or run
            found = agreement(model, sources, base.hypotheses, run.hypotheses, beam=beam, max_len=most)
            scores = zip(base.hypotheses, run.hypotheses, strict=True)
            apart = [abs(one.score - own.score) for one, own in scores if one.score is not None and own.score is not None]
            rows.append(
                {
                    "fused": fused,
                    "top_up": batching.threshold > 0,
                    "beam": beam,
                    "sentences": len(sources),
                    "equal": found.equal,
                    "equal_tokens": found.equal_tokens,
                    "near_ties": [asdict(each) for each in found.near_ties],
                    "disagreements": [asdict(each) for each in found.disagreements],
                    "most_score_apart": max(apart, default=None),
                    "total_s": run.total_s,
                }
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder that simnmt nmt train wrote")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="a sentence a line")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--beam", action="append", type=int, help="default: 1 and 5")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--half", action="store_true", help="weights in float16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    given = parser.parse_args(arguments)
    for option in ("sentences", "batch", "threads"):
        if getattr(given, option) < 1:
            parser.error(f"--{option} {getattr(given, option)}: give 1 or more")
    translator = Translator.load(given.model, threads=given.threads)
    if given.half:
        translator.model.halve()
    lines = list(islice(read_lines(given.text), given.sentences))
    with torch.inference_mode():
        rows = [row for beam in given.beam or (1, 5) for row in compared(translator, lines, beam, given.batch)]
    if given.json:
        print(json.dumps({"model": str(given.model), "results": rows}, indent=1))
        return
    for row in rows:
        print(
            f"beam {row['beam']}, {'fused' if row['fused'] else 'plain'}, {'top-up' if row['top_up'] else 'mini'}: "
            f"{row['equal']} of {row['sentences']} the same ({100 * row['equal_tokens']:.3f} % of tokens), "
            f"{len(row['near_ties'])} near ties, {len(row['disagreements'])} other differences, {row['total_s']:.1f} s"
        )
        for each in [*row["near_ties"], *row["disagreements"]]:
            print(f"  sentence {each['sentence'] + 1}: gap {each['gap']:.2g}")


if __name__ == "__main__":
    try:
        main()
    except SimnmtError as error:
        sys.exit(str(error))
