"""Real decoding with the fused output layer beside the plain one: `python -m benchmarks.fused_decoding --json`.

Sentences of both length mixes (FNI-14), with forced lengths and maxi-batching, are decoded in turn with and without fusing
(FNI-16). Of the plain decoding every part's share of the time is printed; they sum to 1. Beside the measured ratio stands what
Amdahl predicts from the share of the output layer and from how much faster this alone is, timed by itself at a few batch sizes
(FNI-17, XP-07): once with the product as the fused layer takes it, block by block, once with the product left as it was, as in
the paper. `--model` names what `simnmt nmt train` wrote, or any other. `--device cuda --compute-type float16` measures a GPU.

`--two-threads` decodes one batch alternately with one and with two of torch's threads, fused, in steps of equally many rows:
how many times as fast are the kernels, the products and the whole step on two threads? The median step of each decoding counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.batched_decoding import MIXES, Sentences
from simnmt.base.errors import SimnmtError
from simnmt.batching import maxi, mini
from simnmt.calibrate.decoder_speeds import LAYER, Known, decode_alternately, parts_of, stages_over, watched
from simnmt.kernels import output_layer
from simnmt.kernels.projection_timing import clock_of
from simnmt.nmt import output_layer as decoder_layer
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.models import TranslationModel, load_model
from simnmt.nmt.slot_decoder import BatchedRun, decode_batched
from simnmt.nmt.torch_engine import in_type, supported_types
from simnmt.papers.kit.claim import end_to_end

LEAST_OF_TWO_THREADS = 1.6
"""How many times as fast the kernels are to be on two threads, for 160 rows or more."""
SOURCE_LEN = 20
"""Tokens of each source of the decoding on two threads."""
NEAR = 0.10
"""FNI-17: the prediction lies so near to what is measured."""


def figures(model: TranslationModel, mix: str, beam: int, given: argparse.Namespace, known: Known) -> dict[str, Any]:
    """One mix with one beam; `known`: see `stages_over`."""
    sentences = Sentences.drawn(MIXES[mix], given.sentences, model, given.seed)
    clock = clock_of(model.device)
    totals, runs, seen = decode_alternately(
        model,
        sentences.sources,
        maxi(given.batch, 10 * given.batch),
        beam=beam,
        forced_lens=sentences.tgt_len,
        rounds=given.rounds,
        watch=lambda: watched(model, clock),
    )
    stages = stages_over(model, runs[False].active, beam, known, clock=clock)
    parts = {fused: parts_of(runs[fused], seen[fused]) for fused in (False, True)}
    ratios = [plain_s / fused_s for plain_s, fused_s in zip(totals[False], totals[True], strict=True)]
    plain = parts[False]
    whole_s = sum(plain.values())
    shares = {name: seconds / whole_s for name, seconds in plain.items() if not name.startswith("fused")}
    three_s = stages["bias"] + stages["softmax"] + stages["search"]
    layer_s = stages["product"] + three_s
    ratio = statistics.median(ratios)
    layer_share = sum(shares[name] for name in LAYER)
    # The bias is added within the product: its share is that of the stages timed by themselves.
    three_share = layer_share * three_s / layer_s
    layer_ratio, three_ratio = layer_s / (stages["fused_product"] + stages["fused"]), three_s / stages["fused"]
    in_blocks, in_whole = end_to_end(layer_share, layer_ratio), end_to_end(three_share, three_ratio)
    pairs = zip(runs[False].hypotheses, runs[True].hypotheses, strict=True)
    return {
        "mix": mix,
        "beam": beam,
        "steps": int(runs[False].active.size),
        "mean_active": float(runs[False].active.mean()),
        "plain_s": totals[False],
        "fused_s": totals[True],
        "ratio": ratio,
        "ratios": ratios,
        "shares": shares,
        "fused_shares": {name: seconds / sum(parts[True].values()) for name, seconds in parts[True].items()},
        "stages_s": stages,
        "layer_share": layer_share,
        "layer_ratio": layer_ratio,
        "predicted": in_blocks,
        "prediction_error": in_blocks / ratio - 1.0,
        "three_share": three_share,
        "three_ratio": three_ratio,
        "predicted_product_left_alone": in_whole,
        "differing": sum(one.tokens != other.tokens for one, other in pairs),
    }


PARTS_OF_A_STEP = ("kernels", "fused_best", "products", "step")
"""`kernels`: the compiled functions, with the time to begin and end on all threads; `fused_best`: the same with its checks and
allocations in Python; `products`: those of the output layer, by torch; `step`: the whole."""


def two_threads(model: TranslationModel, beam: int, given: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of the median step on one and on two threads, by round, and the median ratios of the rounds.

    `tokens_equal`: whether every decoding gave the same translations. Products of torch may differ in their last bits.
    """
    source = [[model.eos_token] * SOURCE_LEN] * given.batch
    seconds: dict[int, dict[str, list[float]]] = {threads: {name: [] for name in PARTS_OF_A_STEP} for threads in (1, 2)}
    translations = set()
    for number in range(given.rounds + 1):
        for threads in (1, 2) if number % 2 else (2, 1):
            with torch_threads(threads):
                run, by_part = _timed_steps(model, source, beam, given.steps)
            translations.add(tuple(hypothesis.tokens for hypothesis in run.hypotheses))
            if number:  # the first round warms up
                for name, step_s in by_part.items():
                    seconds[threads][name].append(statistics.median(step_s))
    ratios = {
        name: statistics.median(one / two for one, two in zip(seconds[1][name], seconds[2][name], strict=True))
        for name in PARTS_OF_A_STEP
    }
    return {
        "rows": given.batch * beam,
        "beam": beam,
        "steps": given.steps,
        "one_s": seconds[1],
        "two_s": seconds[2],
        "ratios": ratios,
        "reached": ratios["kernels"] >= LEAST_OF_TWO_THREADS,
        "tokens_equal": len(translations) == 1,
    }


def _timed_steps(
    model: TranslationModel, sources: list[list[int]], beam: int, steps: int
) -> tuple[BatchedRun, dict[str, list[float]]]:
    """Decode one batch of translations of `steps` tokens; return the seconds of each step by `PARTS_OF_A_STEP`."""
    seconds: dict[str, list[float]] = {"kernels": [], "fused_best": [], "products": []}

    def timed(do: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            start_s = perf_counter()
            try:
                return do(*arguments, **named)
            finally:
                seconds[part][-1] += perf_counter() - start_s

        return call

    def model_products(*arguments: Any) -> Iterator[Any]:
        for part_s in seconds.values():
            part_s.append(0.0)
        blocks = plain_products(*arguments)
        yield from iter(timed(lambda: next(blocks, None), "products"), None)

    plain_products: Any = model.products
    with (
        patch.object(model, "products", model_products),
        patch.object(decoder_layer, "fused_best", timed(output_layer.fused_best, "fused_best")),
        patch.object(output_layer, "_search", timed(output_layer._search, "kernels")),
        patch.object(output_layer, "share", timed(output_layer.share, "kernels")),
    ):
        run = decode_batched(model, sources, mini(len(sources)), beam=beam, forced_lens=[steps] * len(sources), fused=True)
    # A beam search begins with one row for each sentence.
    return run, {part: part_s[1:] for part, part_s in (*seconds.items(), ("step", run.step_s.tolist()))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gru-512", help="default: gru-512, random weights and 85,000 target tokens")
    parser.add_argument("--mix", action="append", choices=list(MIXES), help="default: both")
    parser.add_argument("--beam", action="append", type=int, help="default: 1 and 5")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compute-type", default="float32")
    parser.add_argument("--two-threads", action="store_true", help="compare two threads with one, on the CPU")
    parser.add_argument("--steps", type=int, default=12, help="with --two-threads: steps of each decoding, at least 2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    given = parser.parse_args(arguments)
    for option in ("sentences", "batch", "rounds", "threads"):
        if getattr(given, option) < 1:
            parser.error(f"--{option} {getattr(given, option)}: give 1 or more")
    if given.steps < 2:
        parser.error(f"--steps {given.steps}: give 2 or more")
    if given.compute_type not in supported_types(given.device):
        parser.error(f"--compute-type {given.compute_type}: {given.device} takes {', '.join(supported_types(given.device))}")
    torch.set_num_threads(given.threads)
    model = in_type(load_model(given.model).model, torch.device(given.device), given.compute_type)
    report: dict[str, Any] = {"model": given.model, "device": given.device, "compute_type": given.compute_type}
    report |= {"vocab": model.vocab, "batch": given.batch, "sentences": given.sentences}
    if given.two_threads:
        report["results"] = [two_threads(model, beam, given) for beam in given.beam or (5,)]
        print(json.dumps(report, indent=1)) if given.json else _print_two_threads(report)
        return
    known: Known = {}
    report["results"] = []
    for mix in given.mix or MIXES:
        for beam in given.beam or (1, 5):
            print(f"{mix}, {given.model}, batch {given.batch}, beam {beam}", file=sys.stderr)
            report["results"].append(figures(model, mix, beam, given, known))
    if given.json:
        print(json.dumps(report, indent=1))
    else:
        _print(report)


def _print_two_threads(report: dict[str, Any]) -> None:
    print(f"{report['model']}, {report['vocab']:,} target tokens, batch {report['batch']}: two threads beside one")
    for row in report["results"]:
        verdict = "asked" if row["reached"] else "misses its bar,"
        print(f"{row['rows']} rows, beam {row['beam']} ({verdict} {LEAST_OF_TWO_THREADS} times for the kernels)")
        for name, ratio in row["ratios"].items():
            one_s, two_s = (statistics.median(row[threads][name]) for threads in ("one_s", "two_s"))
            print(f"  {name:<10} {1e3 * one_s:8.2f} ms, on two {1e3 * two_s:8.2f} ms: {ratio:.2f} times as fast")


def _print(report: dict[str, Any]) -> None:
    print(f"{report['sentences']} sentences, {report['model']}, {report['vocab']:,} target tokens, batch {report['batch']}")
    for row in report["results"]:
        verdict = "asked" if abs(row["prediction_error"]) <= NEAR else "misses its bar,"
        print(
            f"{row['mix']}, beam {row['beam']}: fused {row['ratio']:.3f} times as fast; Amdahl {row['predicted']:.3f} "
            f"({100 * row['prediction_error']:+.1f} %, {verdict} {100 * NEAR:.0f} %), "
            f"{row['predicted_product_left_alone']:.3f} with the product left alone; {row['differing']} sentences differ"
        )
        print("  plain: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in row["shares"].items()))
        print(f"  output layer {row['layer_ratio']:.2f} times as fast; bias, softmax and search {row['three_ratio']:.2f} times")


if __name__ == "__main__":
    try:
        main()
    except SimnmtError as error:
        sys.exit(str(error))
