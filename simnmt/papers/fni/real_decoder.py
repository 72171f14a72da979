"""A real decoder timed with and without the fused output layer, on the paper's two length mixes (FNI-11, 15, 17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.random_streams import stream
from simnmt.batching import maxi
from simnmt.calibrate import harness
from simnmt.nmt.agreement import agreement
from simnmt.nmt.decoder import BatchedRun, decode
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.models import LoadedModel, TranslationModel, load_model
from simnmt.nmt.output_layer import Laps, Output
from simnmt.nmt.search import Search
from simnmt.nmt.torch_engine import STAGES, stage_timer
from simnmt.papers.fni.fused_claims import with_prediction
from simnmt.workload.lengths import MIXES

BATCH, COLLECT = 32, 10
"""Sentences of a mini-batch, ten of which are collected and sorted; a step of the paper's 128 takes one thread seconds."""
ROUNDS, SEED = 3, 1
STAGE_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96)
"""Batch sizes at which single stages are timed; between them times are interpolated linearly. The time of a product is not
smooth in few rows: torch's product of 3 rows was seen to take longer than its product of 4."""
STAGE_ROUNDS, STAGES_WITHIN_S = 5, 5.0
Known = dict[tuple[int, int], dict[str, float]]
"""Seconds of single stages, by batch size and beam."""


def fused_speeds(
    model: str,
    sentences: int,
    beams: Sequence[int],
    *,
    rounds: int = ROUNDS,
    batch: int = BATCH,
    progress: Callable[[int, int], None] = lambda done, tasks: None,
) -> list[dict[str, Any]]:
    """Decode the first `sentences` of each mix in float32 on one thread, with forced lengths for the times, then freely.

    Returns a row for each mix and beam: `plain_s` by round; `ratio`, the median speed-up over rounds that alternate,
    and `ratios`; sentences with `equal` tokens both ways where they end freely (FNI-11), other sentences whose first difference
    is one of `near_ties`, and other `disagreements`; `shares` of the plain decoder's time by part while decoding; seconds over
    all steps of each of `STAGES`; and the columns of `predicted`. Raises the errors of `load_model`.
    """
    loaded, known = load_model(model), Known()
    cells = [(test_set, beam) for test_set in MIXES for beam in beams]
    rows = []
    with torch_threads(1):
        for done, (test_set, beam) in enumerate(cells):
            progress(done, len(cells))
            rows.append(_row(loaded, test_set, beam, sentences, rounds, min(batch, sentences), known))
    progress(len(cells), len(cells))
    return rows


def stages_over(model: TranslationModel, active: NDArray[np.int64], beam: int, known: Known) -> dict[str, float]:
    """Return the seconds of each of `STAGES` over all steps, from single stages timed at a few batch sizes.

    `active`: sentences in each step. `known` has the stages timed before, and receives those timed now.
    """
    most = int(active.max())
    sizes = sorted({size for size in STAGE_BATCHES if size < most} | {most})
    for size in sizes:
        if (size, beam) not in known:
            frame = harness.rounds({"step": stage_timer(model, size, beam)}, STAGE_ROUNDS, STAGES_WITHIN_S)
            medians_s = harness.counted(frame)[list(STAGES)].median().clip(lower=0.0)
            known[size, beam] = {str(name): float(second) for name, second in medians_s.items()}
    timed = [known[size, beam] for size in sizes]
    return {name: float(np.interp(active, sizes, [stages[name] for stages in timed]).sum()) for name in STAGES}


def _row(loaded: LoadedModel, test_set: str, beam: int, count: int, rounds: int, batch: int, known: Known) -> dict[str, Any]:
    model, architecture = loaded.model, loaded.architecture
    src_len, tgt_len = MIXES[test_set].draw(stream(SEED, 0, f"fused {test_set}"), count)
    special = [architecture.pad_token, architecture.eos_token, architecture.unk_token]
    words, generator = np.setdiff1d(np.arange(architecture.src_vocab), special), stream(SEED, 0, "fused sources")
    sources = [[*generator.choice(words, length - 1).tolist(), architecture.eos_token] for length in src_len.tolist()]
    lens, batching, first = tgt_len.tolist(), maxi(batch, COLLECT * batch), sources[:batch]
    runs: dict[bool, tuple[BatchedRun, Mapping[str, float]]] = {}

    def run(fused: bool) -> dict[str, float]:
        laps = Laps()
        done = decode(model, sources, batching, search=Search(beam), output=Output(fused, lap=laps), forced_lens=lens)
        runs[fused] = done, laps.seconds
        return {"seconds": done.total_s}

    def two_steps(fused: bool) -> None:
        decode(model, first, batching, search=Search(beam), output=Output(fused), forced_lens=[2] * len(first))

    cases = {fused: harness.Case(partial(run, fused), prepare=partial(two_steps, fused)) for fused in (False, True)}
    times_s = harness.by_round(harness.rounds(cases, rounds))
    plain, parts_s = runs[False]
    parts_s = {part: parts_s[part] for part in ("body", "project", "softmax", "search")}
    parts_s |= {"encode": plain.encode_s, "refill": plain.refill_s}
    parts_s["rest"] = plain.total_s - sum(parts_s.values())
    ratios = (times_s[False] / times_s[True]).tolist()
    # Forced sentences cannot show whether a difference is a near tie, so both decode freely.
    free = [
        decode(model, sources, batching, search=Search(beam), output=Output(fused), max_len=lens) for fused in (False, True)
    ]
    compared = agreement(model, sources, *(done.hypotheses for done in free), beam=beam, max_len=lens)
    row = {"set": test_set, "beam": beam, "model": loaded.name, "vocab": model.vocab, "weights": loaded.weights}
    row |= {"batch": batch, "sentences": count, "plain_s": times_s[False].tolist()}
    row |= {"ratio": median(ratios), "ratios": ratios, "equal": compared.equal}
    row |= {"near_ties": len(compared.near_ties), "disagreements": len(compared.disagreements)}
    row["shares"] = {name: part_s / plain.total_s for name, part_s in parts_s.items()}
    row |= {f"{name}_s": stage_s for name, stage_s in stages_over(model, plain.active, beam, known).items()}
    return predicted(row)


def predicted(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with Amdahl's prediction of its speed-up (FNI-17, XP-07), by the share of the output layer while decoding.

    The bias is added within the product; its share is that of the single stages.
    """
    layer = {"product_s": row["product_s"], "product_fused_s": row["fused_product_s"], "fused_s": row["fused_s"]}
    layer["three_s"] = row["bias_s"] + row["softmax_s"] + row["search_s"]
    return with_prediction(layer, sum(row["shares"][part] for part in ("project", "softmax", "search"))) | row
