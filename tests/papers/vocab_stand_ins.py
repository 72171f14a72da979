"""Studies of a trained model that were never measured: as the paper's claims would have them."""

from __future__ import annotations

from typing import Any

from simnmt.calibrate.projection_bench import LayerCost, ProjectionBench, Setting, StageCost, StepTime
from simnmt.papers.fvp.study import Cell, Decoded, PartRun, Speed, StudiedModel, StudiedText, Study
from simnmt.papers.kit.claims import share_needed

VOCAB = 10_000
LABELS = ("fr-en", "de-en")
CLUSTERS = (100, 500, 1_300, 2_000)
TOPS = (1, 3, 5)


def cell(label: str = "fr-en", clusters: int = 500, top: int = 1, **changed: Any) -> Cell:
    """Fewer columns with more clusters, more with every K; fewer missed with every K and with more text."""
    sentences, knowledge = changed.get("training_sentences", 32_000), changed.get("knowledge", "both")
    share = 0.05 * top**0.5 * (100 / clusters) ** 0.5 * (1.4 if knowledge == "target" else 1.0)
    miss = 0.02 / top * (clusters / 500) ** 0.5 * (32_000 / sentences) ** 0.5
    names = {"label": label, "clusters": clusters, "top": top, "knowledge": knowledge, "training_sentences": sentences}
    shares = {"share_mean": share, "share_most": min(1.0, 1.5 * share), "set_most": 3 * share, "miss_rate": miss}
    return Cell(**(names | shares | {"heldout_tokens": 9_000, "emitted": 4_000, "identical": (1 - miss) ** 9} | changed))


def decoded(label: str = "fr-en", beam: int = 1, **changed: Any) -> Decoded:
    """The output layer has 40 % of the time and gets 5 times as fast, so all gets 1.47 times as fast; 1.25 with a beam.

    `ratio`, `layer_ratio`: medians of the rounds; `predicted`: by Amdahl.
    """
    ratio = changed.pop("ratio", 1 / 0.68 if beam == 1 else 1.25)
    layer_ratio = changed.pop("layer_ratio", 5.0 if beam == 1 else 2.0)
    predicted = changed.pop("predicted", None)
    share = 0.03 if beam == 1 else 0.12
    fields = {
        "label": label, "clusters": 500, "top": 3, "beam": beam, "batch": 1 if beam == 1 else 20, "sentences": 1_000,
        "identical": 0.94, "token_agreement": 0.985, "conclusive": True, "bleu": 30.0, "bleu_part": 29.9,
        "tokens_per_s": 900.0, "tokens_per_s_fused": 950.0, "tokens_per_s_part": 900.0 * ratio, "layer_us": 90.0,
        "layer_share": 0.4 if predicted is None else share_needed(predicted, layer_ratio), "body_ratio": 1.0, "near_ties": 2,
        "miss_rate": 0.005, "share_mean": share, "share_most": 1.5 * share, "emitted": 4_000,
        "gains": (ratio, 1.01 * ratio, 0.99 * ratio), "gains_over_fused": (ratio / 1.05,),
        "layer_ratios": tuple(layer_ratio * noise for noise in (0.99, 1.0, 1.02)),
        "layer_ratios_over_fused": (layer_ratio / 1.2,),
    }  # fmt: skip
    return Decoded(**(fields | changed))


def speed(label: str, clusters: int, top: int, gain: float, *, conclusive: bool = True) -> Speed:
    """Return a speed in three rounds."""
    ratios = tuple((1.0 + gain) * noise for noise in (1.0, 1.002, 0.998))
    return Speed(
        label=label, clusters=clusters, top=top, beam=1, batch=1, sentences=300, gains=ratios, identical=0.925,
        conclusive=conclusive,
    )  # fmt: skip


def run(part: Any) -> PartRun:
    return PartRun(
        part=part, labels=LABELS, date="2026-11-21T02:00:00+00:00", threads=1, machine="a processor",
        versions={"torch": "2.13"}, notes=(f"{part}: nothing was left out.",),
    )  # fmt: skip


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
        "chosen": tuple(decoded(label, beam) for label in LABELS for beam in (1, 2)),
        "speeds": tuple(
            speed(label, clusters, top, gains[top] - abs(clusters - 1_300) / 1e5)
            for label in LABELS
            for clusters in CLUSTERS
            for top in TOPS
        ),
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
        ),
        texts=texts,
        **({"runs": tuple(run(part) for part in parts)} | parts | changed),
    )  # fmt: skip


STAGES = dict.fromkeys(("assign", "union", "product", "scatter", "search"), 1e-3)


def step(share: float = 0.06, ratio: float = 11.0, rows: int = 1, **changed: Any) -> StepTime:
    """Of V 250,000 and width 1,024, dense in 100 ms; predicted to 5 %."""
    columns_s = 0.1 / ratio
    fields = {
        "vocab": 250_000, "width": 1_024, "rows": rows, "columns": 250_000 * share, "fitted": True,
        "stages_s": STAGES, "dense_s": 0.1, "columns_s": columns_s, "ratio": ratio, "scattered_ratio": ratio / 1.2,
        "predicted_s": 1.05 * columns_s,
    }  # fmt: skip
    return StepTime(**(fields | changed))


def stage(fixed_s: float = 0.0, s_per_column: float = 0.0) -> StageCost:
    """Of any number of rows."""
    return StageCost(rows=(1,), fixed_s=(fixed_s,), s_per_column=(s_per_column,))


def cost(**stages: StageCost) -> LayerCost:
    """Of V 250,000 and width 1,024; nothing for stages that are not given."""
    names = ("assign", "union", "product", "scatter", "search", "dense")
    return LayerCost(vocab=250_000, width=1_024, **{name: stages.get(name, stage()) for name in names})


def bench(*steps: StepTime, **changed: Any) -> ProjectionBench:
    """Both shares that are asked for, and one that was not fitted; all columns win above 40 %. `changed`: of the setting."""
    box = "a GPU" if "device" in changed else "a processor, 1 thread"
    return ProjectionBench(
        kind="measured", setting=Setting(**changed), box=box,
        date="2026-11-21", others_cpus=0.0, steps=steps or (step(), step(0.12, 6.0), step(0.04, 15.0, fitted=False)),
        costs=(cost(product=stage(s_per_column=1.0 / 250_000), dense=stage(0.4)),),
    )  # fmt: skip
