"""The reproduction in a sentence or two, for the top of its page."""

from __future__ import annotations

from simnmt.reproduce.verdicts import counted
from simnmt.reproduce.vocab.decoding_claims import bleu_change, way_of
from simnmt.reproduce.vocab.reproduction import Reproduction
from simnmt.reproduce.vocab.studies import NEEDS


def summary(found: Reproduction) -> str:
    """What a part of the vocabulary keeps and gains on each model, then how many claims hold."""
    said = []
    for study in found.studies:
        if not study.chosen:
            continue
        same = sorted(100 * each.identical for each in study.chosen)
        share = sorted(100 * each.share.mean for each in study.chosen)
        gain = sorted(100 * (each.measured - 1.0) for each in study.chosen)
        changes = sorted(change for each in study.chosen if (change := bleu_change(each)) is not None)
        ways = " and ".join(dict.fromkeys(f"{each.label} with {way_of(each)}" for each in study.chosen))
        bleu = f", moving BLEU by {_span(changes, 2, '+')}," if changes else ""
        said.append(
            f"{study.model.name} ({ways}): {_span(share, 1)} % of {study.model.vocab:,} columns active a step leave "
            f"{_span(same, 1)} % of the sentences as they were{bleu} and change the speed of "
            f"decoding by {_span(gain, 1, '+')} %."
        )
    if not found.studies:
        said.append(f"Published figures alone; what is ours {NEEDS}.")
    return " ".join([*said, f"{counted(found.claims)}."])


def _span(values: list[float], decimals: int, sign: str = "") -> str:
    low, high = (f"{value:{sign}.{decimals}f}" for value in (values[0], values[-1]))
    return low if low == high else f"{low} to {high}"
