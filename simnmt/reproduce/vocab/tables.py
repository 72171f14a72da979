"""The reproduction's tables, as JSON keeps them and the page shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simnmt.reproduce.vocab import published, published_rows, study_rows
from simnmt.reproduce.vocab.bench_claims import bench_rows, break_even_rows
from simnmt.reproduce.vocab.derived import derived
from simnmt.reproduce.vocab.reproduction import Reproduction
from simnmt.reproduce.vocab.studies import NEEDS
from simnmt.reproduce.vocab.summary import summary

if TYPE_CHECKING:
    from simnmt.calibrate.vocabulary.study.document import PartRun, Study


def document(found: Reproduction) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "paper": published.REFERENCE,
        "summary": summary(found),
        "claims": found.claims,
        "tables": tables(found),
        "marks": {
            "figure_2": published.FIGURE_2,
            "figure_2_clusters": published.FIGURE_2_CLUSTERS,
            "figure_3_best": published.FIGURE_3_BEST,
            "figure_4": {str(top): share for top, share in published.FIGURE_4.items()},
        },
        "models": study_rows.models(found.studies),
        "slips": list(published.SLIPS),
        "notes": notes(found),
    }


def tables(found: Reproduction) -> list[dict[str, Any]]:
    """Each with `id`, `title` and `rows`; what was not measured has no rows."""
    own = found.studies
    return [
        {
            "id": "setting",
            "title": "The paper's setting (FVP-13)",
            "rows": [{"what": what, "said": said} for what, said in published.SETTING],
        },
        {"id": "real", "title": "Real decoding of held-out text", "rows": study_rows.real(own)},
        {"id": "table-1", "title": "Table 1: sentences", "rows": published_rows.table_1()},
        {"id": "table-2", "title": "Table 2: the projection of a step", "rows": published_rows.table_2(own)},
        {"id": "table-3", "title": "Table 3: BLEU and speed, set 1", "rows": published_rows.quality(own, 1)},
        {"id": "table-4", "title": "Table 4: BLEU and speed, set 2", "rows": published_rows.quality(own, 2)},
        {"id": "averages", "title": "Averages of Tables 3 and 4, recomputed", "rows": published_rows.averages()},
        {"id": "table-5", "title": "Table 5: memory", "rows": published_rows.table_5(own)},
        {"id": "table-6", "title": "Table 6: human evaluation", "rows": published_rows.table_6()},
        {"id": "amdahl", "title": "The output layer by Amdahl's law", "rows": study_rows.amdahl(own)},
        {"id": "figure-2", "title": "Figure 2: knowledge of languages", "rows": study_rows.cells(own, "by_language")},
        {"id": "figure-3", "title": "Figure 3: speed by clusters and K", "rows": study_rows.speeds(own)},
        {"id": "tried", "title": "How r and K were chosen", "rows": study_rows.tried(own)},
        {"id": "sweep", "title": "Clusters and K", "rows": study_rows.cells(own, "sweep")},
        {"id": "volume", "title": "Training text", "rows": study_rows.cells(own, "volume")},
        {"id": "figure-4", "title": "Figure 4: each cluster's columns", "rows": study_rows.per_cluster(own)},
        {"id": "bench", "title": "The output layer by itself", "rows": bench_rows(found.benches)},
        {"id": "break-even", "title": "Above which share all columns win", "rows": break_even_rows(found.benches)},
        {"id": "derived", "title": "What follows from the printed figures", "rows": derived_rows()},
        {"id": "runs", "title": "How it was measured", "rows": study_rows.runs(own)},
    ]


def derived_rows() -> list[dict[str, Any]]:
    """Figures that follow from printed ones."""
    return [{"what": each.what, "value": each.value, "unit": each.unit, "meaning": each.meaning} for each in derived()]


def notes(found: Reproduction) -> list[str]:
    """What limits the numbers."""
    said = [
        "Published figures are of a V100 in float16 with vocabularies of 250,000 and 128,000; ours of one box’s processor in "
        "float32 with small models and small vocabularies. Shares and ratios can be compared, times cannot.",
        "Projecting onto a part of the vocabulary is not exact: every row says how many sentences stay the same, or that it is "
        "not printed. With all columns active it is dense decoding.",
        "The line through Table 2 and its break-even are of six points a model; ZCode M3’s lie between 12 and 16 %.",
        "The paper’s text holds single points of figures 2 to 4, which are marked; its curves are not in it.",
    ]
    if not found.studies:
        return [*said, f"Published figures alone: what is ours {NEEDS}."]
    said += [
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
    if found.quick or any(run.quick for study in found.studies for run in study.runs):
        said.append("A quick look: few sentences, clusters and rounds, whose verdicts say little.")
    for study in found.studies:
        for run, labels in _last(study):
            said += [f"{study.model.name}, {run.part} of {', '.join(labels)}: {note}" for note in run.notes]
    return said


def _last(study: Study) -> list[tuple[PartRun, list[str]]]:
    """Runs whose figures stand in the study, each with the directions that no later run of its part measured again."""
    found, known = [], set[tuple[str, str]]()
    for run in reversed(study.runs):
        labels = [label for label in run.labels if (run.part, label) not in known]
        known |= {(run.part, label) for label in labels}
        if labels:
            found.append((run, labels))
    return found[::-1]
