"""Tables and charts of the sharp decoder's reproduction: Tables 1 and 2, Figure 1, and what counting predicts beside them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from simnmt.papers.kit.page import ChartSection, Row, Rows, curve, line_chart
from simnmt.papers.kit.table import Table, derived_table, percent, record
from simnmt.papers.sharp import published
from simnmt.papers.sharp.prediction import predicted_int16, predicted_ladder, predicted_over, product_gain, product_share
from simnmt.report.table import Column, TableCell
from simnmt.report.typography import DASH, significant, typeset_interval

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import DecoderTime, SharpSpeeds
    from simnmt.profile.decoder_settings import DecoderSettings


def all_tables(speeds: SharpSpeeds, agreements: Sequence[RungAgreement]) -> list[Table]:
    """Return every table, in the order of the page."""
    return [
        _ladder(speeds, agreements),
        _amdahl(speeds),
        _agreement(agreements),
        _stages(speeds),
        _systems(speeds),
        _context(),
        _products(speeds),
        _activations(speeds),
        derived_table(published.derived()),
    ]


def all_charts(tables: Sequence[Table]) -> list[ChartSection]:
    """Return figure 1."""
    return [_products_chart(table.rows) for table in tables if table.id == "figure-1"]


def _ladder(speeds: SharpSpeeds, agreements: Sequence[RungAgreement]) -> Table:
    # From the fifth rung on a rung has two rows: with table and with polynomial activations.
    shares = {agreement.settings: agreement.share for agreement in agreements}
    rows = [
        _rung(speeds, times, place, shares)
        for place in range(len(published.LADDER))
        for activations, times in speeds.ladder.items()
        if times[place].settings.activations != "library" or activations == "table"
    ]
    return Table(
        "table-1",
        "Table 1: the ladder",
        rows,
        [
            Column("rung", "name"),
            Column("activations", "activations"),
            Column("published, words/s", "published_words_per_s", digits=0),
            Column("published factor", "published_factor", 3, small=lambda row: f"printed {row['printed_factor']:.2f}"),
            Column("measured, words/s", "words_per_s", digits=1),
            Column("measured factor", "factor", digits=3),
            Column("measured over the rung before", "step", digits=3, cell=_step_cell),
            Column(
                "decoder alone, factor",
                "decoder_factor",
                3,
                small=lambda row: f"source {significant(row['source_ms'], 3)} ms",
            ),
            Column("predicted factor", "predicted_factor", digits=2),
            percent("same words so far, %", "agreement", 2),
            Column("translations", "translations"),
        ],
        note="Words a second, source side included, one thread; each rung on top of those before it. From the fifth on with "
        "the paper’s lookup table and with a polynomial. A rung is exact over the one before, or it adds noise, which later "
        "rungs keep. Small print: quartiles over rounds, the printed factor, and milliseconds of the source side a sentence.",
        on_terminal=True,
    )


def _rung(speeds: SharpSpeeds, times: Sequence[DecoderTime], place: int, shares: Mapping[DecoderSettings, float]) -> Row:
    rung, time, before = published.LADDER[place], times[place], times[place - 1] if place else None
    exact_settings = time.settings.model_copy(update={"candidates": None})
    low, step, high = (None, None, None) if before is None else _quartiles(time, before)
    return {
        **record(rung, "rung=key name published_words_per_s=words_per_s printed_factor published_factor=factor"),
        **record(time, "activations=settings.activations words_per_s ms_per_word=word_s*1e3 multiply_adds distinct_share"),
        "settings": time.settings.describe(),
        "published_step": rung.step,
        "factor": time.over(times[0]),
        "decoder_factor": time.decoder_over(times[0]),
        "source_ms": 1e3 * statistics.median(time.source_s),
        "step": step,
        "step_low": low,
        "step_high": high,
        "predicted_factor": predicted_ladder(speeds, times)[place],
        "exact": exact_settings.exact,
        "adds_noise": not rung.exact,
        # The noise of earlier rungs stays, whether or not a rung is exact.
        "translations": "adds noise" if not rung.exact else "exact" if before is None else "exact over the rung before",
        "agreement": shares.get(exact_settings),
    }


def _step_cell(row: Row) -> TableCell:
    if row["step"] is None:
        return TableCell(DASH)
    return TableCell(*typeset_interval(row["step"], row["step_low"], row["step_high"], signs="minus", most=3))


def _quartiles(ours: DecoderTime, theirs: DecoderTime) -> tuple[float, float, float]:
    ratios = ours.ratios(theirs)
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (ratios[0],) * 3
    return low, ours.over(theirs), high


def _amdahl(speeds: SharpSpeeds) -> Table:
    rungs = speeds.ladder["polynomial"]
    row = {
        "share": product_share(speeds),
        "product_gain": product_gain(speeds),
        "predicted": predicted_int16(speeds),
        "measured": rungs[1].over(rungs[0]),
    }
    return Table(
        "amdahl",
        "The 16-bit product by Amdahl's law",
        [row],
        [
            Column("rung", lambda _: "+ 16-bit product"),
            percent("share of products, %", "share", 1),
            Column("products’ gain", "product_gain", digits=2),
            Column("predicted end to end", lambda row: "none" if row["predicted"] is None else row["predicted"], digits=3),
            Column("measured end to end", "measured", digits=3),
        ],
        note="Products’ share of the baseline’s time and their gain, both by the rates of products alone, and what the whole "
        "should gain of it. With a share above 100 % products ran slower alone than in the decoder, and nothing is predicted.",
        on_terminal=True,
    )


def _agreement(agreements: Sequence[RungAgreement]) -> Table:
    rows = [
        {"settings": agreement.settings.describe()}
        | record(agreement, "rung=key exact=settings.exact tokens tokens_same_share=share sentences sentences_same")
        | record(agreement, "distinct_share bleu")
        for agreement in agreements
    ]
    return Table(
        "agreement",
        "What each rung changes on a trained model",
        rows,
        [
            Column("rungs", "rung"),
            Column("so far", lambda row: "exact" if row["exact"] else "not exact"),
            percent("words the same, %", "tokens_same_share", 3),
            Column("of words", "tokens", digits=0),
            Column("sentences the same", lambda row: f"{row['sentences_same']:,} of {row['sentences']:,}"),
            percent("distinct states, %", "distinct_share", 1),
            Column("BLEU", "bleu", digits=4),
        ],
        note="Beside the baseline, whole vocabulary. Words: the likeliest along the baseline’s translations; sentences are "
        "translated by themselves.",
        small="settings",
    )


_STAGES = {
    "prepare_ms": "once a sentence",
    "body_ms": "body",
    "product_ms": "output product",
    "search_ms": "bias, softmax, search",
}


def _stages(speeds: SharpSpeeds) -> Table:
    # A decoder that ran without compiled kernels has no stage times and no row.
    rungs = speeds.ladder["polynomial"]
    rows = [
        {
            "of": time.key,
            "rung": time in rungs,
            "settings": time.settings.describe(),
            "source_ms": 1e3 * statistics.median(time.source_s) / time.words,
            **{key: 1e3 * getattr(time.stage_s, key.replace("_ms", "_s")) / time.words for key in _STAGES},
        }
        for time in (*rungs, *speeds.systems)
        if time.stage_s is not None
    ]
    heads = {"source_ms": "source side", **_STAGES}
    return Table(
        "stages",
        "Where a word's time goes",
        rows,
        [Column("decoder", "of"), *(Column(head, key, digits=3) for key, head in heads.items())],
        note="Milliseconds; the source side of the median round, the others of one run with a clock inside.",
        small="settings",
    )


def _systems(speeds: SharpSpeeds) -> Table:
    measured = {time.key: time for time in speeds.systems}
    first = measured.get("S1")
    rows: list[Row] = []
    for system in published.SYSTEMS:
        time = measured.get(system.key)
        factors = (None, None) if time is None or first is None else (time.over(first), predicted_over(time, first))
        rows.append(
            record(system, "key name bleu published_words_per_s=words_per_s")
            | record({"time": time}, "words_per_s=time.words_per_s multiply_adds=time.multiply_adds")
            | {
                "published_factor": published.speed_over(system.key, "S1"),
                "source_ms": None if time is None else 1e3 * statistics.median(time.source_s),
                "factor": factors[0],
                "predicted_factor": factors[1],
                "exact": None if time is None else time.settings.model_copy(update={"candidates": None}).exact,
            }
        )
    return Table(
        "table-2",
        "Table 2: systems",
        rows,
        [
            Column("system", "key"),
            Column("BLEU", "bleu", digits=1),
            Column("published, words/s", "published_words_per_s", digits=0),
            Column("published over S1", "published_factor", digits=2),
            Column("measured, words/s", "words_per_s", digits=1),
            Column("measured over S1", "factor", digits=2),
            Column("predicted over S1", "predicted_factor", digits=2),
            Column("million multiply-adds a word", "multiply_adds", digits=1, scale=1e-6),
        ],
        note="With all techniques, so not exact (see the ladder); BLEU as published. Predicted: by multiply-adds alone.",
        small="name",
        on_terminal=True,
    )


def _context() -> Table:
    columns = [Column("system", "name"), Column("BLEU", "bleu", 1), Column("speed", "remark")]
    title = "Table 2: others' systems, as published"
    return Table("context", title, published.CONTEXT, columns, published=True, keys="name bleu remark")


_PRODUCTS = {"int16_us": "16 bits", "float32_us": "float32, packed", "torch_us": "torch", "numpy_us": "numpy"}


def _products(speeds: SharpSpeeds) -> Table:
    rows = [
        record(product, "batch cold library=best_library")
        | {f"{name}_us": 1e6 * product.median_s(name) for name in product.seconds}
        | {"over_library": product.ratio("library"), "over_packed": product.ratio("float32")}
        for product in speeds.products
    ]
    return Table(
        "figure-1",
        "Figure 1: 16-bit and 32-bit products",
        rows,
        [
            Column("rows", lambda row: str(row["batch"])),
            Column("weights", lambda row: "from memory" if row["cold"] else "in the cache"),
            *(Column(head, key, significant=3) for key, head in _PRODUCTS.items()),
            Column("over the faster library", "over_library", digits=2),
            Column("over packed float32", "over_packed", digits=2),
        ],
        note="Microseconds of one product with weights of 1024 by 1024; ratios are medians over rounds.",
        on_terminal=True,
    )


def _products_chart(rows: Rows) -> ChartSection:
    charts = {}
    for name, cold in (("weights in the cache", False), ("weights from memory", True)):
        shown = [row for row in rows if row["cold"] == cold]
        ratios = ", ".join(f"{row['over_library']:.2f} at {row['batch']}" for row in shown)
        reading = f"16 bits over the faster library: {ratios}. Published: 2 to 3 at 2 to 8."
        curves = [curve(head, shown, "batch", itemgetter(key)) for key, head in _PRODUCTS.items()]
        charts[name] = line_chart("batch", "microseconds", reading, curves)
    return ChartSection(
        "figure-1-drawn",
        "Figure 1: 16-bit and 32-bit products by batch",
        "Time of one product by batch",
        charts,
        note="Weights of 1024 by 1024, one thread. The paper's curve is not in its text.",
    )


def _activations(speeds: SharpSpeeds) -> Table:
    rows = [{"way": method, "ns": 1e9 * seconds} for method, seconds in speeds.activation_s.items()]
    note = "Nanoseconds an element, in the cache, the mean of both."
    return Table(
        "activations", "Sigmoid and tanh", rows, [Column("method", "way"), Column("ns", "ns", significant=3)], note=note
    )
