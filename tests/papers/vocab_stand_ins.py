"""Studies of a trained model that were never measured: as the paper's claims would have them."""

from __future__ import annotations

from typing import Any

from simnmt.calibrate.projection_bench import BreakEven, ProjectionBench, Setting, StepTime
from simnmt.papers.fvp.study import (
    Cell,
    ClusterSizes,
    Decoded,
    DecodingResult,
    Memory,
    PartRun,
    RoundsKept,
    Speed,
    Spread,
    StudiedModel,
    StudiedText,
    Study,
    StudySettings,
    TriedCell,
)
from simnmt.papers.kit.claim import share_needed

VOCAB = 10_000
LABELS = ("fr-en", "de-en")
CLUSTERS = (100, 500, 1_300, 2_000)
TOPS = (1, 3, 5)


def spread(mean: float, most: float | None = None) -> Spread:
    """About a mean."""
    high = min(1.0, 1.5 * mean) if most is None else most
    return Spread(mean=mean, least=mean / 2, p10=mean / 2, median=mean, p90=high, most=high)


def cell(label: str = "fr-en", clusters: int = 500, top: int = 1, **changed: Any) -> Cell:
    """Fewer columns with more clusters, more with every K; fewer missed with every K and with more text."""
    sentences = changed.pop("training_sentences", 32_000)
    knowledge = changed.pop("knowledge", "both")
    share = 0.05 * top**0.5 * (100 / clusters) ** 0.5 * (1.4 if knowledge == "target" else 1.0)
    miss = 0.02 / top * (clusters / 500) ** 0.5 * (32_000 / sentences) ** 0.5
    return Cell(
        **{
            "label": label,
            "knowledge": knowledge,
            "clusters": clusters,
            "top": top,
            "training_sentences": sentences,
            "training_contexts": 9 * sentences,
            "clustered_contexts": 9 * sentences,
            "heldout_sentences": 1_000,
            "heldout_tokens": 9_000,
            "sets": spread(share, 3 * share),
            "share": spread(share),
            "union": spread(min(1.0, 4 * share)),
            "union_rows": 20,
            "emitted": 4_000,
            "share_of_emitted": share * VOCAB / 4_000,
            "union_of_emitted": 4 * share * VOCAB / 4_000,
            "miss_rate": miss,
            "identical": (1 - miss) ** 9,
            "set_bytes": 100_000,
            "bundle_bytes": 1_000_000,
            **changed,
        }
    )


def rounds_kept(wanted: int = 3, rejected: int = 0, *, conclusive: bool = True) -> RoundsKept:
    """Rounds of a quiet box."""
    return RoundsKept(
        wanted=wanted,
        measured=wanted + rejected,
        rejected=rejected,
        conclusive=conclusive,
        worst_others_cpus=0.05,
        worst_reference_spread=0.02,
    )


def decoding_result(seconds: tuple[float, ...], bleu: float, layer_s: float) -> DecodingResult:
    """Of 9,000 tokens, a step each."""
    rounds = len(seconds)
    return DecodingResult(
        bleu=bleu,
        tokens_per_s=9_000 / seconds[0],
        rounds_s=seconds,
        steps=9_000,
        layer_s=layer_s,
        body_s=5.0,
        layer_rounds_s=(layer_s,) * rounds,
        body_rounds_s=(5.0,) * rounds,
    )


def decoded(label: str = "fr-en", beam: int = 1, **changed: Any) -> Decoded:
    """The output layer has 40 % of the time and gets 5 times as fast, so all gets 1.47 times as fast; 1.25 with a beam.

    `ratio`, `layer_ratio`, `measured_over_fused`, `layer_ratio_over_fused`: medians of the rounds; `predicted`: by Amdahl.
    """
    ratio = changed.pop("ratio", 1 / 0.68 if beam == 1 else 1.25)
    rounds = tuple(10.0 * second for second in (1.0, 1.01, 0.99))
    layer_ratio = changed.pop("layer_ratio", 5.0 if beam == 1 else 2.0)
    part = changed.pop("part_rounds", tuple(second / ratio for second in rounds))
    bleu = changed.pop("bleu", 29.9)
    predicted = changed.pop("predicted", None)
    return Decoded(
        **{
            "label": label,
            "selection": "clustered",
            "clusters": 500,
            "top": 3,
            "beam": beam,
            "batch": 1 if beam == 1 else 20,
            "sentences": 1_000,
            "dense": decoding_result(rounds, 30.0, 4.0),
            "fused": decoding_result(rounds, 30.0, 3.0),
            "part": decoding_result(part, bleu, 4.0 / layer_ratio),
            "identical": 0.94,
            "near_ties": 2,
            "token_agreement": 0.985,
            "miss_rate": 0.005,
            "share": spread(0.03 if beam == 1 else 0.12),
            "share_of_emitted": 0.075,
            "emitted": 4_000,
            "layer_share": 0.4 if predicted is None else share_needed(predicted, layer_ratio),
            "step_ratio": ratio,
            "gains": tuple(dense / restricted for dense, restricted in zip(rounds, part, strict=True)),
            "gains_over_fused": (changed.pop("measured_over_fused", ratio / 1.05),),
            "rounds": rounds_kept(),
            "layer_ratios": tuple(layer_ratio * noise for noise in (0.99, 1.0, 1.02)),
            "layer_ratios_over_fused": (changed.pop("layer_ratio_over_fused", layer_ratio / 1.2),),
            **changed,
        }
    )


def speed(label: str, clusters: int, top: int, gain: float) -> Speed:
    """In three rounds."""
    ratios = tuple((1.0 + gain) * noise for noise in (1.0, 1.002, 0.998))
    return Speed(
        label=label, clusters=clusters, top=top, beam=1, batch=1, sentences=300, ratios=ratios, identical=0.925,
        token_agreement=0.98, rounds=rounds_kept(),
    )  # fmt: skip


def run(part: Any, labels: tuple[str, ...] = LABELS, **changed: Any) -> PartRun:
    """On a box that nobody else used."""
    return PartRun(
        **{
            "part": part,
            "labels": labels,
            "date": "2026-11-21T02:00:00+00:00",
            "seconds": 60.0,
            "threads": 1,
            "machine": "a processor",
            "others_cpus": 0.1,
            "versions": {"torch": "2.13"},
            "method": "sklearn",
            "settings": StudySettings(),
            "notes": (f"{part}: nothing was left out.",),
            **changed,
        }
    )


def study(**changed: Any) -> Study:
    """All parts; `changed`: other entries of a part."""
    gains = {1: 0.30, 3: 0.26, 5: 0.24}
    parts: dict[str, Any] = {
        "sweep": tuple(cell(label, clusters, top) for label in LABELS for clusters in CLUSTERS for top in TOPS),
        "volume": tuple(cell(training_sentences=count) for count in (8_000, 16_000, 32_000)),
        "by_language": tuple(
            cell(label, clusters, knowledge=what)
            for label in LABELS
            for clusters in (100, 400, 500)
            for what in ("both", "target")
        ),
        "per_cluster": tuple(
            ClusterSizes(
                label=label,
                clusters=1_300,
                top=top,
                columns=tuple(max(2, round(top * 400 / (place + 1) ** 0.5)) for place in range(1_300)),
                first=150 * top,
            )
            for label in LABELS
            for top in TOPS
        ),
        "memory": (
            Memory(
                label="fr-en", clusters=500, top=3, centroid_bytes=512_000, norm_bytes=2_000, start_bytes=4_008,
                set_bytes=300_000, flag_bytes=10_000, total_bytes=828_008,
            ),
        ),
        "tried": (
            TriedCell(
                label="fr-en", clusters=500, top=3, columns=800, beam=1, batch=1, sentences=500, bleu_dense=30.0, bleu=29.9,
                identical=0.93, token_agreement=0.98, good=True,
            ),
        ),
        "chosen": tuple(decoded(label, beam) for label in LABELS for beam in (1, 2)),
        "speeds": tuple(
            speed(label, clusters, top, gains[top] - abs(clusters - 1_300) / 1e5)
            for label in LABELS
            for clusters in CLUSTERS
            for top in TOPS
        ),
        "candidates": (decoded(selection="ibm1", clusters=None, top=None, candidates=20, always=0),),
    }  # fmt: skip
    texts = tuple(
        StudiedText(label=label, role=role, name=f"{role}.{label}", sha256="0" * 64, lines=32_000)
        for label in LABELS
        for role in ("train", "heldout", "references")
    )
    return Study(
        tool="simnmt test",
        model=StudiedModel(
            name="gru-xx-en", kind="gru", sha256="0" * 64, vocab=VOCAB, width=256, parameters=10_000_000,
            parameter_bytes=40_000_000,
        ),
        texts=texts,
        **({"runs": tuple(run(part) for part in parts if part != "tried")} | parts | changed),
    )  # fmt: skip


STAGES = dict.fromkeys(("assign", "union", "row_wise", "gather", "scatter", "search"), 1e-3)


def step(share: float = 0.06, ratio: float = 11.0, rows: int = 1, **changed: Any) -> StepTime:
    """Of V 250,000 and width 1,024, dense in 100 ms; predicted to 5 %."""
    columns_s = 0.1 / ratio
    return StepTime(
        **{
            "vocab": 250_000,
            "width": 1_024,
            "rows": rows,
            "columns": 250_000 * share,
            "indices": 250_000 * share,
            "fitted": True,
            "method": "row_wise",
            "stages_s": STAGES,
            "dense_s": 0.1,
            "dense_method": "linear",
            "columns_s": columns_s,
            "scattered_s": 1.2 * columns_s,
            "ratios": {"columns": ratio, "scattered": ratio / 1.2},
            "predicted_s": 1.05 * columns_s,
            "predicted_knowing_s": 1.02 * columns_s,
            **changed,
        }
    )


def bench(*steps: StepTime, device: str = "cpu", **changed: Any) -> ProjectionBench:
    """Both shares that are asked for, and one that was not fitted."""
    measured_steps = steps or (step(), step(0.12, 6.0), step(0.04, 15.0, fitted=False))
    return ProjectionBench(
        **{
            "kind": "measured",
            "setting": Setting(device=device),
            "box": "a GPU" if device == "cuda" else "a processor, 1 thread",
            "date": "2026-11-21",
            "seconds": 200.0,
            "others_cpus": 0.0,
            "steps": measured_steps,
            "break_even": (
                BreakEven(vocab=250_000, width=1_024, rows=1, columns=None, scattered=0.8, fastest=0.6),
                BreakEven(vocab=250_000, width=1_024, rows=40, columns=0.4, scattered=0.3, fastest=0.2),
            ),
            "costs": (),
            **changed,
        }
    )
