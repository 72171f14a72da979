"""What the paper's printed figures say of its own sentences; no device needed (FVP-13, 15 to 21)."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from simnmt.reproduce.verdicts import UNKNOWN, Records, record_of
from simnmt.reproduce.vocab import published
from simnmt.reproduce.vocab.derived import implied_share, mean_percent, rows_of
from simnmt.reproduce.vocab.presets import PRESETS
from simnmt.reproduce.vocab.published import DIRECTIONS, MODELS, TABLE_2, TABLE_6, Model
from simnmt.reproduce.vocab.published_quality import ROWS, Mean, Quality, means


def paper_claims() -> Records:
    """Every sentence that the tables decide, and those that nothing here can."""
    return [*_projection(), *_gains(), *_quality(), *_size(), *_people()]


def _projection() -> Records:
    dense, sparse = rows_of("dense"), rows_of("m3")
    ratios = [each.ratio for each in TABLE_2]
    beyond = [each for each in TABLE_2 if each.active_percent > 100 * published.MOST_ACTIVE + 0.5]
    largest = max(each.active_percent for each in dense)
    shares = {model: [implied_share(each) for each in rows_of(model)] for model in MODELS}
    return [
        record_of(
            "FVP-21 (a)",
            "On average 12.39 % of the columns of ZCode Dense are active",
            "12.39 %",
            f"{mean_percent('dense'):.2f} %, at most {largest:.2f} %",
            abs(mean_percent("dense") - 12.39) < 0.005,
            "12.39 % is the value of EsEn alone",
            basis="published",
        ),
        record_of(
            "FVP-21 (b)",
            "The projection gains 2.4 to 2.6 times",
            "2.4 to 2.6",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            min(ratios) >= 2.35 and max(ratios) < 2.65,
            f"ZCode Dense {_span(each.ratio for each in dense)}, M3 {_span(each.ratio for each in sparse)}, by Table 2",
            basis="published",
        ),
        record_of(
            "FVP-21 (c)",
            "At most about 15 % of the columns are active",
            f"{100 * published.MOST_ACTIVE:.0f} %",
            "; ".join(f"{MODELS[each.model]} {each.direction} {each.active_percent:.2f} %" for each in beyond),
            not beyond,
            "in Table 2; half a point allowed",
            basis="published",
        ),
        record_of(
            "FVP-20 (a)",
            "The projection takes about 25 % of the time or more",
            f"{100 * published.PROJECTION_SHARE:.0f} %",
            "; ".join(
                f"{MODELS[model]} {100 * min(own):.0f} to {100 * max(own):.0f} %, mean {100 * fmean(own):.0f} %"
                for model, own in shares.items()
            ),
            all(share >= published.PROJECTION_SHARE - 0.03 for own in shares.values() for share in own),
            "implied at beam 2, batch 20, by Table 2's ratios and Table 3's gains; 3 points allowed",
            basis="published",
        ),
    ]


def _gains() -> Records:
    own = {model: _rows(model, 1) for model in MODELS}
    dense, sparse = ([each.gain_percent for each in own[model]] for model in MODELS)
    batched = {(each.model, each.row): each.gain_percent for each in ROWS if (each.test_set, each.beam) == (1, 2)}
    single = {(each.model, each.row): each.gain_percent for each in ROWS if (each.test_set, each.beam) == (1, 1)}
    lower = [key for key in batched if key[0] == "dense" and single[key] <= batched[key]]
    sparse_lower = sum(single["m3", row] > batched["m3", row] for row in DIRECTIONS)
    return [
        record_of(
            "FVP-21 (d)",
            "ZCode Dense gains 13.0 to 25.7 % end to end",
            "13.0 to 25.7 %",
            f"{min(dense):.2f} to {max(dense):.2f} %",
            min(dense) >= 12.95 and max(dense) <= 25.75,
            "Table 3",
            basis="published",
        ),
        record_of(
            "FVP-21 (e)",
            "ZCode M3 gains 6 to 8.8 % end to end",
            "6 to 8.8 %",
            f"{min(sparse):.2f} to {max(sparse):.2f} %",
            min(sparse) >= 5.5 and max(sparse) < 8.85,
            "Table 3",
            basis="published",
        ),
        record_of(
            "FVP-20 (b)",
            "With the large vocabulary beam 1, batch 1 gains more than beam 2, batch 20",
            "",
            f"in {len(DIRECTIONS) - len(lower)} of {len(DIRECTIONS)} directions of ZCode Dense",
            not lower,
            f"with M3's smaller vocabulary in {sparse_lower} of {len(DIRECTIONS)}; Table 3",
            basis="published",
        ),
    ]


def _quality() -> Records:
    changes = sorted(ROWS, key=lambda each: each.bleu_change)
    worst, best = changes[0], changes[-1]
    lost = [each for each in changes if round(each.bleu_change, 4) < -published.MOST_BLEU_CHANGE]
    found = [
        record_of(
            "FVP-20 (c)",
            "BLEU is kept",
            "maintaining the BLEU score",
            f"{worst.bleu_change:+.2f} ({_cell(worst)}) to {best.bleu_change:+.2f} ({_cell(best)}), mean "
            f"{fmean(each.bleu_change for each in ROWS):+.3f}",
            not lost,
            f"a loss of {published.MOST_BLEU_CHANGE} allowed in each of the {len(ROWS)} cells of Tables 3 and 4",
            basis="published",
        )
    ]
    for identifier, table, test_set in (("FVP-16", 3, 1), ("FVP-17", 4, 2)):
        own = [each for each in means() if each.printed.test_set == test_set]
        odd = [each for each in own if not each.follows]
        mixed = [each for each in own if each.follows == "by sentences"]
        why = f"of {len(own)}, {len(own) - len(odd) - len(mixed)} are simple means"
        why += f" and {len(mixed)} weighted by sentences" if mixed else ""
        found.append(
            record_of(
                identifier,
                f"The averages of Table {table} are means of its directions",
                "; ".join(f"{_average(each)} {each.value:.2f}" for each in odd),
                "; ".join(f"{_average(each)} {each.simple:.2f} simple, {each.by_sentences:.2f} by sentences" for each in odd),
                not odd,
                why,
                basis="published",
            )
        )
    return found


def _size() -> Records:
    counted = "; ".join(f"{MODELS[model]} {preset.parameters / 1e9:.2f} billion" for model, preset in PRESETS.items())
    return [
        record_of(
            "FVP-13",
            "The printed shapes give the printed numbers of parameters",
            "0.7 and 5 billion",
            counted,
            all(
                least <= preset.parameters / 1e9 < least + size
                for (least, size), preset in zip(((0.7, 0.1), (5.0, 1.0)), PRESETS.values(), strict=True)
            ),
            "embedding tied, experts in every second layer, which the text leaves open; printed digits cut off, not rounded",
            basis="published",
        )
    ]


def _people() -> Records:
    off = [each for each in TABLE_6 if abs(each.difference - each.printed_difference) > 0.005]
    return [
        record_of(
            "FVP-19 (a)",
            "The differences of Table 6 follow from its scores",
            "",
            f"{len(TABLE_6) - len(off)} of {len(TABLE_6)}",
            not off,
            "",
            basis="published",
        ),
        record_of(
            "FVP-19 (b)",
            "Paid annotators score translations with clusters no lower, and higher out of English",
            "+0.40 to +0.90 out of English (p < 0.05 and less), 0.00 to +0.50 into it (none)",
            "",
            UNKNOWN,
            "needs annotators; FVP-08 stands for it: how many sentences are identical, and BLEU",
            basis="published",
        ),
    ]


def _rows(model: Model, test_set: int) -> list[Quality]:
    return [each for each in ROWS if (each.model, each.test_set) == (model, test_set)]


def _span(values: Iterable[float]) -> str:
    found = sorted(values)
    return f"{found[0]:.2f} to {found[-1]:.2f}"


def _cell(each: Quality) -> str:
    return f"{MODELS[each.model]} {each.row}, set {each.test_set}, beam {each.beam}"


def _average(each: Mean) -> str:
    names = {"baseline": "BLEU", "clustered": "BLEU with clusters", "gain_percent": "gain"}
    printed = each.printed
    return f"{MODELS[printed.model]} {printed.row}, beam {printed.beam}, {names[each.what]}"
