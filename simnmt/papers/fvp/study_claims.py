"""The claims that a study of a trained model decides, by its clusters and by real decoding (FVP-08, 10, 11, 20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import sqrt
from typing import cast

from simnmt.papers.fvp.published import LEAST_IDENTICAL, MOST_ACTIVE, MOST_BLEU_CHANGE, PAPER
from simnmt.papers.fvp.study import Part, Row, Study
from simnmt.papers.kit.claims import (
    Bound,
    Claim,
    ClaimRecord,
    Effect,
    Facts,
    Result,
    Undecided,
    about,
    above,
    agrees,
    at_least,
    format_span,
    judge,
    of_paper,
)
from simnmt.papers.kit.figures import grouped
from simnmt.results.statistics import Estimate

UNCLEAR: Effect = (True, False)
"""Neither clearly so nor clearly not."""
NEEDS = "needs a study of a trained model: give --study, or --model and its texts"
NEAR_PREDICTED = about(1.0, 0.10)
"""Largest relative difference of Amdahl's prediction from the measurement (FVP-20's accept)."""
NOISE = 0.05
"""Relative rise of a share from step to step that a falling trend allows: k-means starts anew at each step."""
SIGMAS = 2.0
"""Standard errors of a difference of two miss rates within which they count as equal."""
Rows = Sequence[Row]


class Studied(Facts):
    """A study of one model; a share of V means nothing without V."""

    def __init__(self, study: Study) -> None:
        self.study, self.device = study, study.name
        self.setting = f"V {study.model.vocab:,}, width {study.model.width:,}"

    def lacks(self, need: str) -> Undecided | None:
        """Return the reason why a claim that needs this part, or its times (`timed chosen`), cannot be judged."""
        part = need.removeprefix("timed ")
        entries = getattr(self.study, part)
        if not entries:
            return _lacking(part)
        disturbed = sum(not entry.conclusive for entry in entries) if part != need else 0
        what = f"{disturbed} of {len(entries)} cells have too few undisturbed stretches: measure the part again on a quiet box"
        return Undecided(what) if disturbed else None


def _lacking(part: str) -> Undecided:
    return Undecided(f"the study has no part `{part}`", "needs --model")


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


def _by_search(rows: Rows, describe: Callable[[Row], str]) -> str:
    """Describe every decoding, grouped by direction and method and sorted by beam and batch."""
    return "; ".join(
        f"{label}, {method}: " + ", ".join(f"{describe(row)} (beam {row.beam}, batch {row.batch})" for row in group)
        for (label, method), group in grouped(rows, "label", "way", order="rows").items()
    )


# By real decoding with the chosen clusters.


def _identical(rows: Rows) -> Result:
    def describe(row: Row) -> str:
        ties = f" and {row.near_ties} near ties" if row.near_ties else ""
        return f"{100 * row.identical:.1f} % of {row.sentences:,}{ties}"

    kept = all(row.identical >= LEAST_IDENTICAL for row in rows)
    return Result(kept, _by_search(rows, describe), "near ties, closer than rounding, count as different")


def _bleu(rows: Rows) -> Result:
    known = [row for row in rows if row.bleu_change is not None]
    if not known:
        raise Undecided("needs references")
    lost, risen = (sum(round(sign * row.bleu_change, 4) > MOST_BLEU_CHANGE for row in known) for sign in (-1, 1))
    why = f"{lost} of {len(known)} cells lose more, {risen} gain more: a gain is a difference too, though no loss"
    return Result(not lost and not risen, _by_search(known, lambda row: f"{row.bleu_change:+.2f} of {row.bleu:.2f}"), why)


def _active(rows: Rows) -> Result:
    def describe(row: Row) -> str:
        shares = f"{100 * row.share_mean:.2f} % of V with {100 * row.share_most:.2f} % at most"
        return f"{shares}, so {100 * row.share_of_emitted:.1f} % of the {row.emitted:,} tokens written"

    single = [row.share_most <= MOST_ACTIVE for row in rows if row.rows == 1]
    if not single:
        raise Undecided("no decoding at batch 1")
    return Result(all(single), _by_search(rows, describe), "judged by the most of any step at batch 1")


def _best(key: str, rounds: str, form: Callable[[float], str]) -> Callable[[Rows], Result]:
    """Return what judges the rounds of the cell with the greatest speed-up `key`."""

    def value(rows: Rows) -> Result:
        best, fused = max(rows, key=lambda row: getattr(row, key)), max(getattr(row, f"{key}_over_fused") for row in rows)
        why = f"the best of {len(rows)} cells is judged, round by round; at best {form(fused)} over the fused output layer"
        return Result(getattr(best, rounds), _by_search(rows, lambda row: form(getattr(row, key))), why)

    return value


def _amdahl(rows: Rows) -> Result:
    effects: dict[str, Effect] = {str(at): [row.predicted / gain for gain in row.gains] for at, row in enumerate(rows)}
    trivial = [row for row in rows if all(NEAR_PREDICTED.allows(1.0 / gain) for gain in row.gains)]
    why = f"by round; below the output layer decoding gets {format_span([row.body_ratio for row in rows])} times as fast"
    if trivial:
        why += f"; no test of it where a prediction of no gain passes too, in {len(trivial)} of {len(rows)} cells"
    if len(trivial) == len(rows):
        effects["no test"] = UNCLEAR  # what no gain explains as well can speak against the law, but not for it
    ours = _by_search(rows, lambda row: f"{_percent(row.measured)} where {_percent(row.predicted)} was predicted")
    return Result(effects, ours, why, words=None)


def _single(rows: Rows) -> Result:
    groups = grouped(rows, "label", "way", order="rows").values()
    pairs = [(group[0], group[1]) for group in groups if len(group) == 2 and group[0].rows == 1]
    if not pairs:
        raise _lacking("chosen at both searches")
    effects: dict[str, Effect] = {
        one.label: Estimate(one.measured - other.measured, min(one.gains) - max(other.gains), max(one.gains) - min(other.gains))
        for one, other in pairs
    }
    ours = "; ".join(f"{one.label}: {_percent(one.measured)} against {_percent(other.measured)}" for one, other in pairs)
    return Result(effects, ours, "each round against each, as the two searches do not take turns", words=None)


def _fastest(rows: Rows) -> Result:
    effects: dict[str, Effect] = {}
    ours, judged = [], []
    for (label, beam, batch), group in grouped(rows, "label", "beam", "batch", order=lambda row: -row.measured).items():
        most = max(row.clusters for row in group)
        supporting = [row for row in group if row.top == 1 and row.clusters >= most / 2]
        opposing = [row for row in group if row not in supporting]
        where = f"{label}, beam {beam}, batch {batch}"
        ours.append(f"{where}: {_percent(group[0].measured)} at {group[0].way}")
        if supporting and opposing:
            effects[where] = [ratio > rival for ratio, rival in zip(supporting[0].ratios, opposing[0].ratios, strict=True)]
            judged.append(" against ".join(f"{row.way} ({_percent(row.measured)})" for row in (supporting[0], opposing[0])))
    if not effects:
        raise _lacking("speeds of K = 1 and others at high numbers of clusters")
    why = "the best with K = 1 and half of the most clusters or more against the best of the others, round by round: "
    return Result(effects, "; ".join(ours), why + ", ".join(judged), words=None)


# By dense decoding of held-out text.


def _trend(
    share: str, along: str, follows: Callable[[Rows], Effect], name: str, place: str, why: str, *, every: bool = False
) -> Callable[[Rows], Result]:
    """Return what judges how a share changes along a column, in series of rows that differ in it alone.

    Args:
        share: the column judged.
        along: the column that differs.
        follows: whether a series follows the claim.
        name: template of a series' name, from a row.
        place: template of what differs.
        why: the reason.
        every: show all rows of each direction's series with the most clusters, else the ends of all series.
    """
    keys = [key for key in ("label", "clusters", "top", "training_sentences") if key != along]

    def value(rows: Rows) -> Result:
        series = {key: group for key, group in grouped(rows, *keys, order=along).items() if len(group) > 1}
        if not series:
            raise _lacking(f"of cells that differ in {along}")
        most = {group[0].label: max(other[0].clusters for other in series.values()) for group in series.values()}
        texts = []
        for group in series.values():
            if not every or group[0].clusters == most[group[0].label]:
                shown = group if every else (group[0], group[-1])
                points = ", ".join(f"{100 * getattr(row, share):.2f} % {place.format(row)}" for row in shown)
                texts.append(f"{name.format(group[0])}: {points}")
        return Result({str(key): follows(group) for key, group in series.items()}, "; ".join(texts), why, words=None)

    return value


def _falls(rows: Rows) -> Effect:
    """Return whether shares fall by more than `NOISE` in all, or to 0; false if they rise by more than `NOISE` at any step."""
    values = [row.share_mean for row in rows]
    if values[-1] > values[0] * (1 + NOISE) or any(after > before * (1 + NOISE) for before, after in pairwise(values)):
        return False
    return True if values[-1] == 0.0 or values[-1] < values[0] * (1 - NOISE) else UNCLEAR


def _more_columns(rows: Rows) -> Effect:
    return all(before.share_mean < after.share_mean for before, after in pairwise(rows))


def _fewer_misses(rows: Rows) -> Effect:
    """Return whether misses fall clearly from first to last, or to 0; false if they rise clearly at any step."""

    def fall(before: Row, after: Row) -> float:
        """Return the fall in standard errors of two binomial shares."""
        error = sqrt(sum(row.miss_rate * (1.0 - row.miss_rate) / row.heldout_tokens for row in (before, after)))
        return float((before.miss_rate - after.miss_rate) / error) if error > 0.0 else 0.0

    if any(fall(before, after) < -SIGMAS for before, after in (*pairwise(rows), (rows[0], rows[-1]))):
        return False
    return True if rows[-1].miss_rate == 0.0 or fall(rows[0], rows[-1]) > SIGMAS else UNCLEAR


def _knowledge(rows: Rows) -> Result:
    sets = {
        key: {row.knowledge: row.set_most for row in group} for key, group in grouped(rows, "label", "clusters", "top").items()
    }
    pairs = {key: (most["both"], most["target"]) for key, most in sets.items() if len(most) == 2}
    if not pairs:
        raise _lacking("by_language of both kinds")
    kept = [both <= target for both, target in pairs.values()]
    ours = "; ".join(
        "{}, {} clusters, K = {}: ".format(*key) + f"{100 * pairs[key][0]:.2f} against {100 * pairs[key][1]:.2f} %"
        for key in [key for key in pairs if key[1] == PAPER["figure_2"]["clusters"]] or list(pairs)
    )
    why = f"so in {sum(kept)} of {len(kept)} pairs of a direction, a number of clusters and a K; "
    why += "the mix holds more contexts than one direction, which alone may make its sets larger"
    return Result(kept, ours, why)


def _claim(identifier: str, needs: str, value: Callable[[Rows], Result], holds: Bound = agrees) -> Claim[Studied]:
    part = cast(Part, needs.removeprefix("timed "))
    return Claim(identifier, value=lambda studied: value(studied.study.rows(part)), holds=holds, needs=needs)


_RISING = "of V, mean over held-out steps at batch 1; a step may rise by 5 %"
_PART_OF = "so by construction, as the set of a K is part of that of a larger one"
_BY_R, _BY_CELL = "{0.label}, {0.clusters:,} clusters", "{0.label}, {0.clusters:,} clusters, K = {0.top}"
_AT_K, _WITH_TEXT = "at K = {0.top}", "with {0.training_sentences:,} sentences"
_ERRORS = f"as a trend, by {SIGMAS:g} standard errors of the held-out tokens"
STUDY_CLAIMS = of_paper(
    PAPER,
    [
        _claim("FVP-08 (a)", "chosen", _identical),
        _claim("FVP-08 (b)", "chosen", _bleu),
        _claim("FVP-20 (d)", "chosen", _active),
        _claim(
            "FVP-20 (e)", "timed chosen", _best("layer_ratio", "layer_ratios", "{:.2f}".format), at_least(PAPER["step_ratio"])
        ),
        _claim("FVP-20 (f)", "timed chosen", _best("measured", "gains", _percent), at_least(1.0 + PAPER["gain"])),
        _claim("FVP-20 (g)", "timed chosen", _amdahl, NEAR_PREDICTED),
        _claim("FVP-20 (h)", "timed chosen", _single, above(0.0)),
        _claim(
            "FVP-11 (a)",
            "sweep",
            _trend("share_mean", "clusters", _falls, "{0.label}, K = {0.top}", "at {0.clusters:,}", _RISING),
        ),
        _claim("FVP-11 (b)", "sweep", _trend("share_mean", "top", _more_columns, _BY_R, _AT_K, _PART_OF, every=True)),
        _claim("FVP-11 (d)", "timed speeds", _fastest),
        _claim("FVP-08 (c)", "sweep", _trend("miss_rate", "top", _fewer_misses, _BY_R, _AT_K, _PART_OF, every=True)),
        _claim("FVP-10", "by_language", _knowledge),
        _claim("FVP-08 (d)", "volume", _trend("miss_rate", "training_sentences", _fewer_misses, _BY_CELL, _WITH_TEXT, _ERRORS)),
    ],
)


def study_claims(studies: Sequence[Study]) -> list[ClaimRecord]:
    """Return all claims by every study; without a study, claims that name the missing study."""
    return judge(STUDY_CLAIMS, [Studied(study) for study in studies], Undecided(NEEDS, "needs --model"))
