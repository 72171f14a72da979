"""The fused output layer on a GPU beside torch's own sequence: `python -m benchmarks.kernels_cuda --json`.

Both are captured in a CUDA graph each and replayed in turn, so that neither pays for launches from Python; medians over the
rounds count. V = 85,000 and 250,000, batches 1 to 128 at beam 1 and at beam 5, float32, float16 and bfloat16.
`roofline_share` holds what the fused one reads against a copy of as many bytes, replayed in turn as well. Unmeasured so far:
no GPU was at hand when this was written. `--device cpu` with TRITON_INTERPRET=1 runs the same code, slowly: take a small
`--vocab` and few rounds, and believe no time of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from simnmt.kernels.cases_output import in_place
from simnmt.kernels.triton_output import Workspace, best_into

VOCABS, BATCHES, BEAMS = (85_000, 250_000), (1, 8, 32, 128), (1, 5)
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
BARS = {"ratio": (">", 1.5), "roofline_share": (">=", 0.7)}
"""What the project asks: of beam 5, more still of beam 1; of copy bandwidth where the products outgrow the cache."""
REPLAYS = 20
"""Between two readings of the clock."""

Run = Callable[[], object]


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


def seconds(run: Run, replays: int, device: torch.device) -> float:
    """Of one replay, by the GPU's own clock."""
    if device.type == "cpu":
        start_s = time.perf_counter()
        for _ in range(replays):
            run()
        return (time.perf_counter() - start_s) / replays
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(replays):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / replays


def measured(vocab: int, batch: int, beam: int, dtype: torch.dtype, rounds: int, device: torch.device) -> dict[str, Any]:
    """One row of the table."""
    rows = batch * beam
    generator = torch.Generator(device).manual_seed(rows)
    pristine = torch.randn(rows, vocab, generator=generator, device=device).mul_(3.0).to(dtype)
    bias = torch.randn(vocab, generator=generator, device=device)
    products, overwritten = pristine.clone(), pristine.clone()
    workspace = Workspace.of(rows, vocab, beam, device)
    best_into(workspace, products, bias)
    logits = products.float() + bias
    best = workspace.best
    wanted = logits.topk(beam, 1).values - logits.logsumexp(1, keepdim=True)
    error = float((best.log_probs - wanted).abs().max())
    size_bytes = products.numel() * products.element_size() + 4 * vocab
    half, other = (torch.empty(size_bytes // 8, device=device) for _ in range(2))
    theirs = in_place(overwritten, bias, beam)
    restore = overwritten.copy_

    def sequence() -> None:
        restore(pristine)
        theirs()

    runs = {
        "fused": captured(lambda: best_into(workspace, products, bias), device),
        "restored and in place": captured(sequence, device),
        "restored": captured(lambda: restore(pristine), device),
        "copy": captured(lambda: other.copy_(half), device),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):  # the first warms up
        for name, run in runs.items():
            took_s = seconds(run, REPLAYS if device.type == "cuda" else 1, device)
            times[name] += [took_s] if number else []
    fused_s = statistics.median(times["fused"])
    # What is overwritten must be restored ahead of every replay; restoring alone is timed too and taken off.
    torch_s = statistics.median(times["restored and in place"]) - statistics.median(times["restored"])
    return {
        "vocab": vocab,
        "batch": batch,
        "beam": beam,
        "dtype": str(dtype).removeprefix("torch."),
        "fused_us": 1e6 * fused_s,
        "torch_us": 1e6 * torch_s,
        "ratio": torch_s / fused_s,
        "roofline_share": statistics.median(times["copy"]) / fused_s,
        "error": error,
    }


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
    rows = [
        measured(vocab, batch, beam, TYPES[dtype], given.rounds, device)
        for dtype in given.dtype or TYPES
        for vocab in given.vocab or VOCABS
        for beam in BEAMS
        for batch in given.batch or BATCHES
    ]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu, interpreted"
    bars = {key: f"{sign} {value}" for key, (sign, value) in BARS.items()}
    if given.json:
        print(json.dumps({"device": name, "torch": torch.__version__, "rows": rows, "bars": bars}, indent=1))
        return
    print(f"{name}; asked: {bars}")
    for row in rows:
        size = f"V {row['vocab']:,}, batch {row['batch']}, beam {row['beam']}, {row['dtype']}"
        print(
            f"{size:<44} fused {row['fused_us']:9.1f} us  torch {row['torch_us']:9.1f} us  {row['ratio']:6.2f} times as fast  "
            f"{100 * row['roofline_share']:4.0f} % of copy bandwidth  error {row['error']:.1e}"
        )


if __name__ == "__main__":
    main()
