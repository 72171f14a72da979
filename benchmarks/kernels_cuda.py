"""The fused output layer on a GPU beside torch's own sequence: `python -m benchmarks.kernels_cuda --json`.

Both are captured in a CUDA graph each and replayed in turn, so that neither pays for launches from Python; medians over the
rounds count. V = 85,000 and 250,000, batches 1 to 128 at beam 1 and at beam 5, float32, float16 and bfloat16.
`roofline_share` holds what the fused one reads against a copy of as many bytes, replayed in turn as well. Asked is
`LEAST_RATIO` over torch, at beam 1 more than at beam 5, and `LEAST_SHARE` of copy bandwidth where the products outgrow the
cache; each row's `reached` and `missed` say whether it is so. Unmeasured so far: no GPU was at hand when this was written.
`--device cpu` with TRITON_INTERPRET=1 runs the same code, slowly: take a small `--vocab`, few rounds, and believe no time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from simnmt.calibrate import harness
from simnmt.calibrate.vocabulary_bench import cache_bytes, clock_of
from simnmt.kernels.output_layer import in_place
from simnmt.kernels.output_reference import ROWS_AT_ONCE, Best
from simnmt.kernels.triton_output import Workspace, best_into

VOCABS, BATCHES, BEAMS = (85_000, 250_000), (1, 8, 32, 128), (1, 5)
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LEAST_RATIO, LEAST_SHARE = 1.5, 0.7
ERROR_BOUND = 2e-5
"""Of a log-probability: 1e-6 of a row's log-sum, which is below 20 here."""
LEAST_S = 0.1
REPLAYS = 50
"""Between two readings of the clock, which wait for the GPU."""

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    vocab: int
    batch: int
    beam: int
    dtype: str
    fused_us: float
    torch_us: float
    ratio: float
    """Times as fast as torch: the median of the rounds' ratios."""
    roofline_share: float
    beyond_cache: bool
    """Whether the products are larger than the GPU's cache."""
    error: float
    reached: bool = True
    missed: tuple[str, ...] = ()
    """What was asked of this row and is not so."""


def judged(rows: Sequence[Row]) -> list[Row]:
    """The same rows, with what was asked of each."""
    of_beams = {(row.vocab, row.batch, row.dtype): row.ratio for row in rows if row.beam == BEAMS[1]}
    return [_judged(row, of_beams.get((row.vocab, row.batch, row.dtype), 0.0)) for row in rows]


def _judged(row: Row, at_beam_5: float) -> Row:
    asked = {
        f"more than {LEAST_RATIO} times as fast": row.ratio > LEAST_RATIO,
        "more gained than at beam 5": row.beam != 1 or row.ratio > at_beam_5,
        f"at least {LEAST_SHARE} of copy bandwidth": not row.beyond_cache or row.roofline_share >= LEAST_SHARE,
        "error within its bound": row.error <= ERROR_BOUND,
    }
    missed = tuple(what for what, so in asked.items() if not so)
    return replace(row, reached=not missed, missed=missed)


def captured(run: Run, device: torch.device) -> Run:
    """A replay of what `run` launches; on the CPU, `run` itself."""
    if device.type == "cpu":
        return run
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compiles, and takes what memory it needs
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def best_error(best: Best, products: torch.Tensor, bias: torch.Tensor) -> float:
    """Return the largest error in float64 of a log-probability, and of the value of a column against the value of its rank.

    Columns of equal values may be in any order; a column that is returned twice counts as an error of 1.
    """
    error, count = 0.0, best.columns.shape[1]
    for begin in range(0, products.shape[0], ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        logits, columns = products[rows].double() + bias, best.columns[rows]
        wanted = logits.topk(count).values
        log_probs = wanted - logits.logsumexp(1, keepdim=True)
        for difference in (best.log_probs[rows] - log_probs, logits.gather(1, columns) - wanted):
            error = max(error, float(difference.abs().max()))
        if any(len(set(row)) < count for row in columns.tolist()):
            error = max(error, 1.0)
    return error


def measured(vocab: int, batch: int, beam: int, dtype: torch.dtype, rounds: int, device: torch.device) -> Row:
    """One row of the table, not judged yet."""
    rows = batch * beam
    generator = torch.Generator(device).manual_seed(rows)
    pristine = torch.randn(rows, vocab, generator=generator, device=device).mul_(3.0).to(dtype)
    bias = torch.randn(vocab, generator=generator, device=device)
    products, overwritten = pristine.clone(), pristine.clone()
    workspace = Workspace.of(rows, vocab, beam, device)
    best_into(workspace, products, bias)
    error = best_error(workspace.best, products, bias)
    size_bytes = products.numel() * products.element_size() + 4 * vocab
    half, other = (torch.empty(size_bytes // 8, device=device) for _ in range(2))
    theirs = in_place(overwritten, bias, beam)

    def sequence() -> None:
        overwritten.copy_(pristine)
        theirs()

    runs = {
        "fused": captured(lambda: best_into(workspace, products, bias), device),
        "restored and in place": captured(sequence, device),
        "restored": captured(lambda: overwritten.copy_(pristine), device),
        "copy": captured(lambda: other.copy_(half), device),
    }
    replays = REPLAYS if device.type == "cuda" else 1
    cases = {name: repeated(run, replays) for name, run in runs.items()}
    frame = harness.rounds(cases, rounds, least_s=LEAST_S, clock=clock_of(device))
    times_s = harness.by_round(frame)
    # What is overwritten must be restored ahead of every replay; restoring alone is timed too and taken off.
    torch_s = times_s["restored and in place"] - times_s["restored"]
    return Row(
        vocab=vocab,
        batch=batch,
        beam=beam,
        dtype=str(dtype).removeprefix("torch."),
        fused_us=1e6 * float(np.median(times_s["fused"])) / replays,
        torch_us=1e6 * float(np.median(torch_s)) / replays,
        ratio=float(np.median(torch_s / times_s["fused"])),
        roofline_share=harness.ratio(frame, "copy", "fused"),
        beyond_cache=size_bytes > cache_bytes(device),
        error=error,
    )


def repeated(run: Run, times: int) -> Run:
    """As one call."""

    def all_of_them() -> None:
        for _ in range(times):
            run()

    return all_of_them


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, action="append", help="default: 85,000 and 250,000")
    parser.add_argument("--batch", type=int, action="append", help="default: 1, 8, 32 and 128")
    parser.add_argument("--dtype", action="append", choices=list(TYPES), help="default: all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cuda", help="cpu with TRITON_INTERPRET=1 tries the code alone")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    given = parser.parse_args(arguments)
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here")
    rows = judged(
        [
            measured(vocab, batch, beam, TYPES[dtype], given.rounds, device)
            for dtype in given.dtype or TYPES
            for vocab in given.vocab or VOCABS
            for beam in BEAMS
            for batch in given.batch or BATCHES
        ]
    )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu, interpreted"
    if given.json:
        print(json.dumps({"device": name, "torch": torch.__version__, "rows": [asdict(row) for row in rows]}, indent=1))
        return
    print(name)
    for row in rows:
        size = f"V {row.vocab:,}, batch {row.batch}, beam {row.beam}, {row.dtype}"
        print(
            f"{size:<44} fused {row.fused_us:9.1f} us  torch {row.torch_us:9.1f} us  {row.ratio:6.2f} times as fast  "
            f"{100 * row.roofline_share:4.0f} % of copy bandwidth  error {row.error:.1e}"
            + "".join(f"; not {missed}" for missed in row.missed)
        )
    print(f"{sum(row.reached for row in rows)} of {len(rows)} rows are as asked")


if __name__ == "__main__":
    main()
