"""Real batched decoding beside the simulated, and the batchers beside each other:
`python -m benchmarks.batched_decoding --profile @cpu1-gru --json`.

Sentences of Table 1's two length mixes (FNI-14), with forced lengths, are decoded by a real model under each batcher. With a
`--profile`, calibrated beforehand, the simulated server decodes the same sentences: its total time and mean active batch should
lie within 5 % of the real ones. Before and after each run three batches of equal sentences are decoded; what they take over
what the simulated server says of them, `box_over_profile`, tells the pace of the box since it was calibrated. The *raw* error
is that of the profile alone, the *matched* one that of the simulated time multiplied by this pace, round by round; medians over
the rounds count, and the spread is the range of the real totals over their median. Without a profile only the batchers are
compared: by the ratio of their sentences per second, taking turns round by round; the median over the rounds counts.
`--fused`: with the fused output layer, real and simulated. `--device cuda` measures a GPU, `--compute-type float16` in half
precision; a profile says its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from pandas import DataFrame

from simnmt.base import shipped_files
from simnmt.base.errors import SimnmtError
from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.calibrate import harness
from simnmt.calibrate.harness import Case, counted
from simnmt.devices.batch import Decoded, decode_all
from simnmt.nmt.decoder import decode
from simnmt.nmt.models import TranslationModel, load_model
from simnmt.nmt.output_layer import Output
from simnmt.nmt.search import Search
from simnmt.nmt.torch_engine import TorchEngine, in_type
from simnmt.profile.cost import DecodingCost
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, read_profile
from simnmt.profile.profile_variant import with_decoder
from simnmt.workload.lengths import MIXES, LognormalLengths

BATCHERS: dict[str, Callable[[int], Batching]] = {
    "mini": mini,
    "maxi": maxi,
    "half-empty": lambda size: top_up(size, half_empty(size)),
    "immediate": lambda size: top_up(size, immediate(size)),
}
REFERENCES = 3
REFERENCE_LEN = 20
"""Source and target tokens of the sentences that tell the box's speed."""
BARS = {
    "absolute_matched_error": ("<=", 0.05),
    "absolute_occupancy_error": ("<=", 0.05),
    "half-empty_over_mini": (">=", 1.10),
    "half-empty_over_maxi": (">=", 0.97),
}
"""What the project asks: of each simulated total and mean batch; of half-empty top-up on the OpenSubtitles mix. A figure that
misses its bar is printed as it is. With forced lengths that are all at hand the same batcher takes the same steps, so a mean
batch that differs at all is a fault of one of the two decoders."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """What is decoded, shape (sentences,)."""

    src_len: list[int]
    tgt_len: list[int]
    sources: list[list[int]]

    @classmethod
    def drawn(cls, mix: LognormalLengths, count: int, model: TranslationModel, seed: int) -> Sentences:
        """The first sentences of a mix, of random tokens, cut to the model's positions."""
        generator = np.random.default_rng(seed)
        longest = model.max_positions or 10**9
        src_len, tgt_len = (np.minimum(column, longest).tolist() for column in mix.draw(generator, count))
        vocab, special = model.architecture.src_vocab, {model.pad_token, model.eos_token, model.start_token}
        words = np.setdiff1d(np.arange(vocab), sorted(special))
        sources = [[*generator.choice(words, length - 1).tolist(), model.eos_token] for length in src_len]
        return cls(src_len, tgt_len, sources)


def measured(
    model: TranslationModel,
    sentences: Sentences,
    batchings: dict[str, Batching],
    beam: int,
    rounds: int,
    *,
    fused: bool = False,
) -> DataFrame:
    """Time every batcher in rounds of the harness; `beside_s` is the mean of the references before and after a run."""
    run = partial(decode, model, search=Search(beam), output=Output(fused))

    def reference_s(size: int) -> float:
        """Mean of the decodings of a batch of equal sentences; the mean counts, since the profile holds means."""
        sources, lengths = [[model.eos_token] * REFERENCE_LEN] * size, [REFERENCE_LEN] * size
        return statistics.mean(run(sources, mini(size), forced_lens=lengths).total_s for _ in range(REFERENCES))

    def once(batching: Batching) -> dict[str, float]:
        before_s = reference_s(batching.size)
        done = run(sentences.sources, batching, forced_lens=sentences.tgt_len)
        return {
            "seconds": done.total_s,
            "beside_s": (before_s + reference_s(batching.size)) / 2.0,
            "encode_s": done.encode_s,
            "refill_s": done.refill_s,
            "decode_s": done.total_s - done.encode_s - done.refill_s,
            "steps": int(done.active.size),
            "mean_active": float(done.active.mean()),
        }

    def warm_up() -> None:
        run(sentences.sources[:8], mini(8), forced_lens=[2] * len(sentences.sources[:8]))

    cases = {name: Case(partial(once, batching), prepare=warm_up) for name, batching in batchings.items()}
    return counted(harness.rounds(cases, rounds), every=True)


def figures(runs: DataFrame, simulated: dict[str, Decoded] | None, reference_s: float | None) -> list[dict[str, Any]]:
    """One row per batcher; `reference_s`: of the simulated server."""
    rows = []
    for name, rounds in runs.groupby("case", sort=False):
        middle = rounds.sort_values("seconds").iloc[(len(rounds) - 1) // 2]
        total_s = rounds["seconds"]
        row: dict[str, Any] = {"batcher": name, "total_s": middle["seconds"], "rounds_s": total_s.tolist()}
        row |= {key: middle[key].item() for key in ("encode_s", "refill_s", "steps", "mean_active")}
        if simulated is not None and reference_s is not None:
            decoded, account = simulated[str(name)], simulated[str(name)].account
            pace = rounds["beside_s"] / reference_s
            matched = float((pace * decoded.total_s / total_s).median()) - 1.0
            parts = {"encode": account.encode_s, "refill": account.refill_s}
            parts["decode"] = decoded.total_s - sum(parts.values())
            row |= {
                "box_over_profile": float(pace.median()),
                "simulated_total_s": decoded.total_s,
                "simulated_mean_active": account.mean_active,
                "total_error": float((decoded.total_s / total_s).median()) - 1.0,
                "matched_error": matched,
                "absolute_matched_error": abs(matched),
                "spread": float((total_s.max() - total_s.min()) / total_s.median()),
                "absolute_occupancy_error": abs(account.mean_active / row["mean_active"] - 1.0),
                # Seconds of the total that each part adds to the matched error, over the real total.
                "matched_parts": {
                    part: float(((pace * simulated_s - rounds[f"{part}_s"]) / total_s).median())
                    for part, simulated_s in parts.items()
                },
            }
        rows.append(row)
    return rows


def ratios(runs: DataFrame) -> dict[str, float]:
    """Speed of top-up over that of the others: the median of the rounds' ratios."""
    names = set(runs["case"])
    pairs = [(ours, theirs) for ours in ("half-empty", "immediate") for theirs in ("mini", "maxi") if {ours, theirs} <= names]
    return {f"{ours}_over_{theirs}": harness.ratio(runs, theirs, ours) for ours, theirs in pairs}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", metavar="FILE|@NAME", help="device profile with costs of steps and encoder")
    parser.add_argument("--model", help="default: the profile's")
    parser.add_argument("--mix", action="append", choices=list(MIXES), help="default: both")
    parser.add_argument("--batcher", action="append", choices=list(BATCHERS), help="default: all")
    parser.add_argument("--sentences", type=int, default=2_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--fused", action="store_true", help="decode with the fused output layer")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="without a profile, which says its own")
    parser.add_argument("--device", default="cpu", help="without a profile, which says its own")
    parser.add_argument("--compute-type", default="float32", help="without a profile, which says its own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    given = parser.parse_args(arguments)
    for option in ("sentences", "batch", "beam", "rounds", "threads"):
        if getattr(given, option) < 1:
            parser.error(f"--{option} {getattr(given, option)}: give 1 or more")
    profile = None if given.profile is None else _profile(given.profile)
    cost = None if profile is None else _cost(profile, given.beam, given.fused)
    name, threads, device, compute_type = given.model or "gru", given.threads, given.device, given.compute_type
    if profile is not None:
        assert profile.engine is not None
        name, threads, device = given.model or profile.model.name, profile.engine.threads, profile.engine.device
        compute_type = profile.engine.compute_type
    if compute_type not in TorchEngine.supported_types(device):
        what = f"--compute-type {compute_type}" if profile is None else f"profile {profile.name}, in {compute_type}"
        parser.error(f"{what}: {device} takes {', '.join(TorchEngine.supported_types(device))}")
    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load_model(name)
    if (
        profile is not None
        and profile.engine is not None
        and profile.engine.architecture != loaded.architecture.model_dump(mode="json")
    ):
        raise SystemExit(f"profile {profile.name} was measured on another model than {name}: name it by --model")
    model = in_type(loaded.model, torch.device(device), compute_type)
    batchings = {name: BATCHERS[name](given.batch) for name in given.batcher or BATCHERS}
    document: dict[str, Any] = {"model": name, "device": device, "compute_type": compute_type}
    document |= {"batch": given.batch, "beam": given.beam}
    document |= {"fused": given.fused, "sentences": given.sentences, "mixes": {}}
    for mix in given.mix or MIXES:
        print(f"{mix}, {name}, batch {given.batch}, beam {given.beam}", file=sys.stderr)
        sentences = Sentences.drawn(MIXES[mix], given.sentences, model, given.seed)
        simulated, reference_s = None, None
        if cost is not None:
            alike = np.full(given.batch, REFERENCE_LEN)
            reference_s = decode_all(mini(given.batch), cost, alike, alike).total_s
            lengths = np.array(sentences.src_len), np.array(sentences.tgt_len)
            simulated = {name: decode_all(batching, cost, *lengths) for name, batching in batchings.items()}
        runs = measured(model, sentences, batchings, given.beam, given.rounds, fused=given.fused)
        document["mixes"][mix] = {"batchers": figures(runs, simulated, reference_s), "ratios": ratios(runs)}
    document["bars"] = {name: f"{comparison} {value}" for name, (comparison, value) in BARS.items()}
    if given.json:
        print(json.dumps(document, indent=1))
    else:
        _print(document)


def _profile(name: str) -> DeviceProfile:
    return read_profile(shipped_files.find("calibration", name) if name.startswith("@") else name)


def _cost(profile: DeviceProfile, beam: int, fused: bool) -> DecodingCost:
    if profile.step is None:
        raise SystemExit(f"profile {profile.name} has no costs of decode steps: calibrate one")
    if profile.step.beam != beam:
        raise SystemExit(f"profile {profile.name} was measured with beam {profile.step.beam}, not {beam}")
    if profile.engine is None or profile.engine.backend != "torch":
        raise SystemExit(f"profile {profile.name} was not measured with torch, as this decodes")
    if fused or profile.decoder is not None:
        profile, _ = with_decoder(profile, DecoderSettings(beam=beam, fused=fused))
    return profile.decoding_cost


def _print(document: dict[str, Any]) -> None:
    for mix, part in document["mixes"].items():
        settings = f"{document['model']}, batch {document['batch']}, beam {document['beam']}"
        print(f"{mix}: {document['sentences']:,} sentences, {settings}")
        for row in part["batchers"]:
            line = f"  {row['batcher']:<11} {row['total_s']:8.1f} s  mean active {row['mean_active']:6.2f}"
            line += f"  {document['sentences'] / row['total_s']:7.2f} sentences/s"
            if "total_error" in row:
                line += f"  simulated {row['simulated_total_s']:8.1f} s ({100 * row['total_error']:+.1f} %)"
                line += f", matched {100 * row['matched_error']:+.1f} %"
                line += "" if row["absolute_matched_error"] <= BARS["absolute_matched_error"][1] else ", misses its bar"
                line += f" (spread {100 * row['spread']:.1f} %)"
                parts = ", ".join(f"{part} {100 * error:+.1f}" for part, error in row["matched_parts"].items())
                line += f": {parts} points; mean active {row['simulated_mean_active']:6.2f}"
                line += f"; the box takes {row['box_over_profile']:.2f} of the profile's times"
            print(line)
        for name, value in part["ratios"].items():
            bar = BARS.get(name) if mix == "opensubtitles" else None
            missed = ", misses its bar" if bar is not None and value < bar[1] else ""
            print(f"  {name.replace('_', ' ')} {value:.3f}{f' (asked {bar[0]} {bar[1]:g})' if bar else ''}{missed}")


if __name__ == "__main__":
    try:
        main()
    except SimnmtError as error:
        sys.exit(str(error))
