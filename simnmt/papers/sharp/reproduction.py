"""Reproduce the sharp decoder: time it on this box, judge the paper's claims, and report both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.base.errors import InputError
from simnmt.papers.kit.claim import ClaimRecord
from simnmt.papers.kit.report import PaperReport
from simnmt.papers.sharp import published
from simnmt.papers.sharp.claims import all_claims
from simnmt.papers.sharp.tables import all_charts, all_tables

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import SharpSpeeds

Progress = Callable[[int, int, str], None]
"""Called with the number of steps done, the number of all steps and the name of the next one."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The timings of this box, and the verdicts on the paper's claims."""

    speeds: SharpSpeeds
    quick: bool
    claims: list[ClaimRecord]
    agreements: list[RungAgreement] = field(default_factory=list)
    """One per rung, measured on a trained model; empty without a model."""

    @property
    def warnings(self) -> list[str]:
        """Warnings about the trained model: weights that the 16-bit products clip."""
        messages = [rung.clipping.warning() for rung in self.agreements if rung.clipping is not None]
        return list(dict.fromkeys(filter(None, messages)))

    def report(self) -> PaperReport:
        """Return the reproduction for JSON, terminal and page."""
        tables = all_tables(self.speeds, self.agreements)
        return PaperReport(
            heading="Sharp models on dull hardware, reproduced",
            paper=published.REFERENCE,
            claims=self.claims,
            tables=tables,
            charts=all_charts(tables),
            setting=published.SETTING,
            setting_title="The paper's setting (SHARP-16)",
            slips=published.SLIPS,
            notes=_notes(self),
            summary="The paper makes a translation decoder 4.4 times as fast on one core in six steps that hardly change its "
            "translations: 16-bit products, kept products of embeddings, attention, lookup tables, merged hypotheses. "
            "Beside a GRU it stacks fully connected layers, which cost a fraction of a GRU layer.\n"
            "Here the same decoder runs with random weights of the paper's shapes on one thread of this box.",
            main_claims=("SHARP-11 (b)", "SHARP-11 (a)", "SHARP-18", "SHARP-10 (a)", "SHARP-15 (b)", "SHARP-13"),
            main_charts=("figure-1-drawn",),
            more={"level": self.speeds.level},
        )


def reproduce(
    *,
    quick: bool = False,
    rounds: int | None = None,
    model: str | None = None,
    text: Path | None = None,
    references: Path | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Time the ladder, the stacks and the ensembles of the paper on one thread of this box.

    Args:
        quick: use a smaller vocabulary and fewer rounds, systems and batches.
        rounds: number of rounds; None: the setting's.
        model: folder of a trained attentional model, to measure what each rung changes.
        text: file of the sentences that the model translates.
        references: file with a translation of each sentence, for BLEU.
        progress: called before each step.

    Raises:
        InputError: `model` without `text`, `text` without `model`, or `references` without both.
    """
    if (model is None) != (text is None):
        raise InputError("a trained model and a text go together", remedy="give both --model and --text, or neither")
    if references is not None and text is None:
        raise InputError("--references without a text", remedy="give --model and --text as well")
    # Imported here, so that the published tables need no torch.
    from simnmt.calibrate.sharp_agreement import sharp_agreement
    from simnmt.calibrate.sharp_speeds import QUICK, Setting, sharp_speeds

    setting = QUICK if quick else Setting()
    if rounds is not None:
        setting = replace(setting, rounds=rounds)
    agreements = []
    if model is not None and text is not None:
        agreements = sharp_agreement(model, text, setting.beam, progress=progress, references=references)
    speeds = sharp_speeds(setting, progress)
    return Reproduction(speeds, quick, all_claims(speeds, agreements, quick=quick), agreements)


def _notes(reproduction: Reproduction) -> list[str]:
    speeds, setting, level = reproduction.speeds, reproduction.speeds.setting, reproduction.speeds.level
    sentences = [
        f"One thread; beam {setting.beam}, {setting.src_len} source words, {setting.tgt_len} target words of forced length, "
        f"{setting.candidates} candidates of a vocabulary of {speeds.vocab:,}; random weights of the paper's shapes, "
        "with embeddings of 512, which the paper leaves open.",
        "Words a second include the source side (three bidirectional GRU layers of 512; of S7 eight LSTM layers), as the "
        "paper's do. The same rungs switch its 16-bit products, kept products of embeddings and activations; the speed of the "
        "decoder alone is shown beside it.",
        "Each timed translation follows another one of the same decoder, as in a text, which left its weights in the caches.",
        f"All compared decoders take turns, in {len(speeds.systems[0].sentence_s)} rounds or more; figures are medians, "
        "factors medians of the rounds' ratios, and a verdict is clear where their quartiles agree.",
        "The baseline multiplies float32 weights packed as ours are in 16 bits; the paper's is a library that cannot pack.",
        "Predictions: counted multiply-adds at the measured rates of products of as many rows as the beam has (of one row for "
        "the source side's states), with weights from memory where the last cache cannot hold them, counted activations at "
        "theirs, and the rest of the baseline as it is. Those of systems: multiply-adds alone.",
        "Embeddings: the products of the 8,000 most frequent words are kept; 95 % of the candidates are among these words, "
        "as in the paper 95 % of the tokens are.",
        "Exact rungs are identities: the same translations. A trained model (--model, --text) shows how many words the other "
        "rungs leave the same, with the whole vocabulary; the paper prints 99.9 % and more.",
        "BLEU of the paper's systems is shown as published: it needs models trained on 380 million words.",
        f"Compiled kernels: {level}."
        if level
        else "No compiled kernels: the fallback in numpy ran, whose times are no test of the paper's techniques.",
    ]
    sentences += [f"The trained model: {warning}." for warning in reproduction.warnings]
    if reproduction.quick:
        sentences.append(
            "A quick look: fewer rounds, some of the systems and of figure 1's batches, and a smaller vocabulary, whose "
            "embeddings are in the cache more often."
        )
    return sentences
