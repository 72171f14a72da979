"""What clusters hold in memory beside the paper's two models, by their shapes and by ours' sets (FVP-12, FVP-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from simnmt.reproduce.verdicts import Records, record_of
from simnmt.reproduce.vocab import published
from simnmt.reproduce.vocab.presets import preset_account
from simnmt.reproduce.vocab.published import FIGURE_3_BEST, FIGURE_4, MODELS, TABLE_5, Model

if TYPE_CHECKING:
    from simnmt.calibrate.vocabulary.study.document import Study
    from simnmt.nmt.vocabulary.memory_account import MemoryAccount


@dataclass(frozen=True, slots=True)
class PresetMemory:
    """One account of a preset."""

    model: Model
    clusters: int
    mean_share: float
    """Of V, of a set."""
    shares_of: str
    """Where the share is from: a figure of the paper, or a model of ours."""
    account: MemoryAccount

    @property
    def of_model(self) -> float:
        """Of the weights in float16."""
        return self.account.share or 0.0

    @property
    def of_published(self) -> float:
        """Of Table 5's memory, which holds more than weights."""
        (gb,) = {each.baseline_gb for each in TABLE_5 if each.model == self.model}
        return self.account.total / (gb * 1e9)


def preset_memory(studies: Sequence[Study] = ()) -> list[PresetMemory]:
    """Of both presets: at 1,300 clusters with figure 4's shares by K, and with the mean shares of our sets."""
    shares = [(FIGURE_3_BEST, share / 100.0, f"figure 4, K = {top}") for top, share in FIGURE_4.items()]
    shares += [
        (own.clusters, fmean(own.columns) / study.model.vocab, f"{study.model.name}, {own.label}, K = {own.top}")
        for study in studies
        for own in study.per_cluster
        if own.clusters == FIGURE_3_BEST
    ]
    return [
        PresetMemory(model, clusters, share, whose, preset_account(model, clusters, share))
        for model in MODELS
        for clusters, share, whose in shares
    ]


def memory_claims() -> Records:
    """Of the presets with K = 1, which the paper chose."""
    own = [each for each in preset_memory() if each.mean_share == FIGURE_4[1] / 100.0]
    others = [each for each in preset_memory() if each.mean_share != FIGURE_4[1] / 100.0 and each.model == "dense"]
    printed = [each.more_percent for each in TABLE_5]
    return [
        record_of(
            "FVP-18",
            f"Clusters add less than {100 * published.MOST_MEMORY:.0f} % to the model's memory",
            f"{min(printed):.2f} to {max(printed):.2f} %",
            "; ".join(f"{MODELS[each.model]} {each.account.total / 1e6:.1f} MB, {100 * each.of_model:.2f} %" for each in own),
            all(each.of_model < published.MOST_MEMORY for each in own),
            f"of the weights alone in float16, {FIGURE_3_BEST:,} clusters of K = 1 with about {FIGURE_4[1]:.0f} % of the "
            f"columns each; of the memory that Table 5 prints {', '.join(f'{100 * each.of_published:.2f} %' for each in own)}; "
            f"ZCode Dense with larger K: {', '.join(f'{100 * each.of_model:.1f} % ({each.shares_of})' for each in others)}",
            basis="inferred",
        )
    ]
