"""The whole reproduction of vocabulary projection: the paper's tables, studies of trained models, verdicts, tables and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.base.errors import InputError
from simnmt.base.text_tables import format_table
from simnmt.calibrate.projection_bench import ProjectionBench
from simnmt.papers.fvp import published, table_rows
from simnmt.papers.fvp.bench_claims import bench_claims, bench_rows, break_even_rows
from simnmt.papers.fvp.cluster_claims import cluster_claims
from simnmt.papers.fvp.decoding_claims import decoding_claims
from simnmt.papers.fvp.evidence import NEEDS, Say, read_benches, read_studies, shipped_files_of, study_model
from simnmt.papers.fvp.memory import memory_claims
from simnmt.papers.fvp.paper_claims import derived, paper_claims
from simnmt.papers.fvp.study import PartRun, Study, format_clusters
from simnmt.papers.kit.claim import Records, describe_verdicts, format_claims

if TYPE_CHECKING:
    from simnmt.papers.fvp.study_texts import Direction


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and what trained models of ours say of them."""

    studies: Sequence[Study] = ()
    quick: bool = False
    claims: Records = field(default_factory=list)
    benches: Sequence[ProjectionBench] = ()
    """The output layer by itself, as measured."""


def all_claims(studies: Sequence[Study] = (), benches: Sequence[ProjectionBench] = (), *, quick: bool = False) -> Reproduction:
    """Verdicts over what was measured, of each study in turn; without one, over what is printed."""
    measured: list[dict[str, Any]] = []
    for study in studies or (None,):
        measured += [*decoding_claims(study), *cluster_claims(study)]
    claims = [*measured, *bench_claims(benches), *memory_claims(), *paper_claims()]
    return Reproduction(studies, quick, claims, benches)


def reproduce(
    *,
    studies: Sequence[Path] | None = None,
    benches: Sequence[Path] | None = None,
    model: Path | None = None,
    directions: Sequence[Direction] = (),
    parts: Sequence[str] = (),
    quick: bool = False,
    say: Say = lambda _: None,
) -> Reproduction:
    """The paper's tables with what `studies` and `benches` say of them; of either the shipped ones where none is named.

    With a `model` and its texts, that model is studied instead, which takes an hour or, if `quick`, minutes; of `studies` the
    one that is named is then the file that its study is kept in and gone on with. `parts`: those to measure, again where they
    have been; none named: all that are missing.
    Raises `InputError` where a model comes without texts, or texts without a model.
    """
    layers = read_benches(shipped_files_of("bench") if benches is None else benches)
    if model is None:
        given = {"--text": directions, "--part": parts, "--quick": quick}
        if asked := [option for option, value in given.items() if value]:
            raise InputError(f"{asked[0]} without a model to study", remedy="give --model FOLDER as well")
        return all_claims(read_studies(shipped_files_of("study") if studies is None else studies), layers)
    if not directions:
        remedy = "give both for each direction: --text fr-en=FILE --heldout fr-en=FILE"
        raise InputError("--model without --text and --heldout", remedy=remedy)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --model", remedy="give the one file that its study is kept in")
    kept = studies[0] if studies else None
    return all_claims([study_model(model, directions, kept=kept, parts=parts, quick=quick, say=say)], layers, quick=quick)


def summary(reproduction: Reproduction) -> str:
    """Describe what a part of the vocabulary keeps and gains on each model, and how many claims hold."""
    sentences = []
    for study in reproduction.studies:
        if not study.chosen:
            continue
        same = sorted(100 * decoding.identical for decoding in study.chosen)
        share = sorted(100 * decoding.share.mean for decoding in study.chosen)
        gain = sorted(100 * (decoding.measured - 1.0) for decoding in study.chosen)
        changes = sorted(change for decoding in study.chosen if (change := decoding.bleu_change) is not None)
        methods = " and ".join(dict.fromkeys(f"{decoding.label} with {decoding.method_label}" for decoding in study.chosen))
        bleu = f", moving BLEU by {_span(changes, 2, '+')}," if changes else ""
        sentences.append(
            f"{study.model.name} ({methods}): {_span(share, 1)} % of {study.model.vocab:,} columns active a step leave "
            f"{_span(same, 1)} % of the sentences as they were{bleu} and change the speed of "
            f"decoding by {_span(gain, 1, '+')} %."
        )
    if not reproduction.studies:
        sentences.append(f"Published figures alone; what is ours {NEEDS}.")
    return " ".join([*sentences, f"{describe_verdicts(reproduction.claims)}."])


def _span(values: list[float], decimals: int, sign: str = "") -> str:
    low, high = (f"{value:{sign}.{decimals}f}" for value in (values[0], values[-1]))
    return low if low == high else f"{low} to {high}"


def document(reproduction: Reproduction) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    return {
        "paper": published.REFERENCE,
        "summary": summary(reproduction),
        "claims": reproduction.claims,
        "tables": tables(reproduction),
        "marks": {
            "figure_2": published.FIGURE_2,
            "figure_2_clusters": published.FIGURE_2_CLUSTERS,
            "figure_3_best": published.FIGURE_3_BEST,
            "figure_4": {str(top): share for top, share in published.FIGURE_4.items()},
        },
        "models": table_rows.models(reproduction.studies),
        "slips": list(published.SLIPS),
        "notes": notes(reproduction),
    }


def tables(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return every table with `id`, `title` and `rows`; a table without measurements has no rows."""
    studies = reproduction.studies
    return [
        {
            "id": "setting",
            "title": "The paper's setting (FVP-13)",
            "rows": [{"what": what, "said": statement} for what, statement in published.SETTING],
        },
        {"id": "real", "title": "Real decoding of held-out text", "rows": table_rows.real(studies)},
        {"id": "table-1", "title": "Table 1: sentences", "rows": table_rows.table_1()},
        {"id": "table-2", "title": "Table 2: the projection of a step", "rows": table_rows.table_2(studies)},
        {"id": "table-3", "title": "Table 3: BLEU and speed, set 1", "rows": table_rows.quality(studies, 1)},
        {"id": "table-4", "title": "Table 4: BLEU and speed, set 2", "rows": table_rows.quality(studies, 2)},
        {"id": "averages", "title": "Averages of Tables 3 and 4, recomputed", "rows": table_rows.averages()},
        {"id": "table-5", "title": "Table 5: memory", "rows": table_rows.table_5(studies)},
        {"id": "table-6", "title": "Table 6: human evaluation", "rows": table_rows.table_6()},
        {"id": "amdahl", "title": "The output layer by Amdahl's law", "rows": table_rows.amdahl(studies)},
        {"id": "figure-2", "title": "Figure 2: knowledge of languages", "rows": table_rows.cells(studies, "by_language")},
        {"id": "figure-3", "title": "Figure 3: speed by clusters and K", "rows": table_rows.speeds(studies)},
        {"id": "tried", "title": "How r and K were chosen", "rows": table_rows.tried(studies)},
        {"id": "sweep", "title": "Clusters and K", "rows": table_rows.cells(studies, "sweep")},
        {"id": "volume", "title": "Training text", "rows": table_rows.cells(studies, "volume")},
        {"id": "figure-4", "title": "Figure 4: each cluster's columns", "rows": table_rows.per_cluster(studies)},
        {"id": "bench", "title": "The output layer by itself", "rows": bench_rows(reproduction.benches)},
        {"id": "break-even", "title": "Above which share all columns win", "rows": break_even_rows(reproduction.benches)},
        {"id": "derived", "title": "What follows from the printed figures", "rows": derived_rows()},
        {"id": "runs", "title": "How it was measured", "rows": table_rows.runs(studies)},
    ]


def derived_rows() -> list[dict[str, Any]]:
    """Return the figures derived from printed ones."""
    return [
        {"what": figure.what, "value": figure.value, "unit": figure.unit, "meaning": figure.meaning} for figure in derived()
    ]


def notes(reproduction: Reproduction) -> list[str]:
    """Return the limits of the figures, one note each."""
    sentences = [
        "Published figures are of a V100 in float16 with vocabularies of 250,000 and 128,000; ours of one box’s processor in "
        "float32 with small models and small vocabularies. Shares and ratios can be compared, times cannot.",
        "Projecting onto a part of the vocabulary is not exact: every row says how many sentences stay the same, or that it is "
        "not printed. With all columns active it is dense decoding.",
        "The line through Table 2 and its break-even are of six points a model; ZCode M3’s lie between 12 and 16 %.",
        "The paper’s text holds single points of figures 2 to 4, which are marked; its curves are not in it.",
    ]
    if not reproduction.studies:
        return [*sentences, f"Published figures alone: what is ours {NEEDS}."]
    sentences += [
        "The share of V, over held-out steps at batch 1, is what dense decoding of held-out text would have had active; "
        "`identical` of a sweep counts sentences of greedy decoding without a miss, since up to its first miss a sentence is "
        "decoded alike both ways. What real decoding keeps is of its own beam and batch, in the row of that decoding alone.",
        "A part of V may be small on paper since V is large beyond what is ever written: so the share of the tokens that dense "
        "decoding of the training text and the development half writes stands beside it.",
        "With a part of the vocabulary scores are of this part alone, as if it were all, and a step of several rows has the "
        "columns of all of them: a translation may depend on which sentences are decoded together.",
        "Real decoding takes turns, round by round: with all of the vocabulary (plain, and with the fused output layer), and "
        "with a part of it. Amdahl’s prediction is from the output layer’s share of the plain decoder’s time.",
    ]
    if reproduction.quick or any(run.settings.quick for study in reproduction.studies for run in study.runs):
        sentences.append("A quick look: few sentences, clusters and rounds, whose verdicts say little.")
    for study in reproduction.studies:
        for run, labels in _last(study):
            sentences += [f"{study.model.name}, {run.part} of {', '.join(labels)}: {note}" for note in run.notes]
    return sentences


def _last(study: Study) -> list[tuple[PartRun, list[str]]]:
    """Return the runs whose figures the study holds, with the directions that no later run of the part measured again."""
    latest, known = [], set[tuple[str, str]]()
    for run in reversed(study.runs):
        labels = [label for label in run.labels if (run.part, label) not in known]
        known |= {(run.part, label) for label in labels}
        if labels:
            latest.append((run, labels))
    return latest[::-1]


def as_text(reproduction: Reproduction) -> str:
    """Format Tables 2 to 5 with our figures, Amdahl's law, the sweep's extremes and chosen cells, and a line per claim."""
    rows = {table["id"]: table["rows"] for table in tables(reproduction)}
    sections = [
        summary(reproduction),
        _projection(rows["table-2"]),
        _quality("Table 3", rows["table-3"]),
        _quality("Table 4", rows["table-4"]),
        _memory(rows["table-5"]),
        _amdahl(rows["amdahl"]),
        _sweep(_extremes(rows["sweep"], rows["table-3"])),
        format_claims(reproduction.claims),
    ]
    return "\n\n".join(part for part in sections if part)


def _projection(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            _name(row),
            row["kind"],
            f"{row['beam']} x {row['batch']}",
            f"{row['active_percent']:.2f}",
            f"{row['us']:,.1f}",
            _shown(row["line_us"], ",.1f"),
            f"{row['ratio']:.2f}",
            f"{row['operation_limit']:.1f}",
            row["agreement"],
        )
        for row in rows
    ]
    head = ("Table 2", "kind", "beam x batch", "active, %", "us", "line, us", "ratio", "by counting", "translations")
    return "The projection of a step; ours with softmax and search\n" + format_table(head, lines)


def _quality(table: str, rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            _name(row),
            row["kind"],
            f"{row['beam']} x {row['batch']}",
            _shown(row["bleu"], ".2f"),
            _shown(row["bleu_part"], ".2f"),
            _shown(row["bleu_change"], "+.2f"),
            f"{row['gain_percent']:+.2f}",
            row["agreement"],
        )
        for row in rows
    ]
    head = (table, "kind", "beam x batch", "BLEU", "with a part", "change", "gain, %", "translations")
    return "BLEU, and tokens a second end to end\n" + format_table(head, lines)


def _memory(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{row['model']}, {row['row']}",
            row["kind"],
            "" if row["clusters"] is None else f"{row['clusters']:,}",
            f"{row['model_mb']:,.1f}",
            f"{row['more_mb']:,.2f}",
            f"{row['more_percent']:.2f}",
        )
        for row in rows
    ]
    return format_table(("Table 5", "kind", "clusters", "model, MB", "more, MB", "more, %"), lines)


def _amdahl(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            _name(row),
            f"{row['beam']} x {row['batch']}",
            f"{100 * row['layer_share']:.1f}",
            f"{row['layer_ratio']:.2f}",
            f"{row['body_ratio']:.2f}",
            f"{row['predicted']:.3f}",
            f"{row['measured']:.3f}",
            f"{row['measured_over_fused']:.3f}",
        )
        for row in rows
    ]
    head = (
        "Amdahl",
        "beam x batch",
        "output layer, %",
        "its gain",
        "body's gain",
        "predicted",
        "measured",
        "measured over fused",
    )
    return format_table(head, lines) if lines else ""


def _extremes(sweep: list[dict[str, Any]], decoded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells with the fewest and the most clusters of each direction and K, and those that were decoded with."""
    spans: dict[tuple[Any, ...], list[int]] = {}
    for row in sweep:
        spans.setdefault((row["model"], row["label"], row["top"]), []).append(row["clusters"])
    chosen = {(row["model"], row["row"], row["way"]) for row in decoded}

    def is_shown(row: dict[str, Any]) -> bool:
        clusters = spans[row["model"], row["label"], row["top"]]
        method = format_clusters(row["clusters"], row["top"])
        return row["clusters"] in (min(clusters), max(clusters)) or (row["model"], row["label"], method) in chosen

    return [row for row in sweep if is_shown(row)]


def _sweep(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{row['model']}, {row['label']}, {format_clusters(row['clusters'], row['top'])}",
            f"{100 * row['share_mean']:.2f}",
            f"{100 * row['share_most']:.2f}",
            f"{100 * row['union_mean']:.2f}",
            f"{100 * row['share_of_emitted']:.1f}",
            f"{100 * row['miss_rate']:.2f}",
            f"{100 * row['identical']:.1f}",
        )
        for row in rows
    ]
    head = ("Sweep, %", "of V", "most", f"of V at {rows[0]['union_rows']}" if rows else "", "of emitted", "missed", "same")
    return format_table(head, lines) if lines else ""


def _name(row: dict[str, Any]) -> str:
    return ", ".join(part for part in (row["model"], row.get("row", row.get("label")), row["way"]) if part)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
