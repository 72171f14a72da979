"""Build vocabulary bundles from texts, and describe what a bundle activates and holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simnmt.cli.terminal import note
from simnmt.nmt.translation import Translator

if TYPE_CHECKING:
    from simnmt.nmt.step_model import StepModel
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
    from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle

CLUSTERS, TOP, SENTENCES = 100, 5, 30_000
Progress = Callable[[str, float | None], None]


def texts_by_label(texts: list[str]) -> dict[str, Path]:
    """Return the files by label; a file without a label gets its name without the extension."""
    paths: dict[str, Path] = {}
    for text in texts:
        label, _, named = text.partition("=")
        if not named or Path(text).exists():
            label, named = Path(text).stem, text
        if not label or label in paths:
            what = f"{text}: a second text {label}" if label else f"{text}: no label"
            raise typer.BadParameter(f"{what}; give each its own, as in fr-en=news.fr", param_hint="--text")
        paths[label] = Path(named)
    return paths


def build_cluster_bundle(
    translator: Translator,
    texts: dict[str, Path],
    out: Path,
    sentences: int | None,
    progress: Progress | None,
    *,
    name: str,
    **options: Any,
) -> dict[str, Any]:
    """Build clusters, write them, and tell what they are."""
    from simnmt.nmt.vocabulary.builders import build_clusters, sample_evenly

    taken = {}
    for label, path in texts.items():
        lines = _lines(path)
        taken[label] = sample_evenly(lines, sentences or SENTENCES)
        if len(taken[label]) < len(lines):
            note(f"{label}: {len(taken[label]):,} of {len(lines):,} lines, evenly spread; --sentences takes more")
    given = {"clusters": CLUSTERS, "top": TOP} | {name: value for name, value in options.items() if value is not None}
    bundle = build_clusters(translator, taken, name=name, progress=progress, **given)
    bundle.save(out)
    return describe_clusters(bundle)


def build_list_bundle(
    translator: Translator,
    source: Path,
    targets: Path,
    out: Path,
    sentences: int | None,
    progress: Progress | None,
    *,
    name: str,
    **options: Any,
) -> dict[str, Any]:
    """Build and write candidate lists, and return their description."""
    from simnmt.nmt.errors import NmtError
    from simnmt.nmt.vocabulary.builders import build_candidates, sample_evenly

    if options["align"] not in (None, "ibm1", "attention"):
        raise NmtError(f"no alignment by {options['align']}", remedy="take ibm1 or attention")
    ours, theirs = _lines(source), _lines(targets)
    if len(ours) != len(theirs):
        raise NmtError(f"{len(ours):,} sources but {len(theirs):,} targets", remedy="line i must translate line i")
    count = min(len(ours), sentences or len(ours))

    def report(done: int) -> None:
        if progress is not None:
            progress("aligning", done / count)

    given = {name: value for name, value in options.items() if value is not None}
    lists = build_candidates(translator, sample_evenly(ours, count), sample_evenly(theirs, count), progress=report, **given)
    if lists.pairs != count:
        left = count - (lists.pairs or 0)
        note(f"{left:,} of {count:,} pairs left out: a side is empty, or longer than the model takes")
    header = {"model": name, "align": options["align"] or "ibm1"}
    lists.save(out, translator.model, header)
    return describe_lists(lists, header)


def _lines(path: Path) -> list[str]:
    from simnmt.workload.text_lines import TextLines

    return list(TextLines(path, kept="all"))


def describe_bundle(file: Path, model: Path | None) -> dict[str, Any]:
    """What a bundle of either kind is. Raises `NmtError`, also where it is not of the model in that folder."""
    from simnmt.nmt.models import load_model
    from simnmt.nmt.vocabulary.bundle_file import read_bundle
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
    from simnmt.nmt.vocabulary.cluster_bundle import KIND, load_clusters

    loaded: StepModel | None = None if model is None else load_model(str(model)).model
    bundle = read_bundle(file)
    if bundle.kind == KIND:
        return describe_clusters(load_clusters(file, loaded))
    return describe_lists(CandidateLists.load(file, loaded), bundle.note)


def describe_clusters(bundle: ClusterBundle) -> dict[str, Any]:
    """Return the active shares by direction, their origin, and the memory account."""
    from simnmt.nmt.vocabulary.cluster_bundle import ActiveShares

    made = ("beam", "inertia", "iterations", "method", "seed")
    directions = [
        ActiveShares.of(cluster_set).as_json() | {name: getattr(cluster_set, name) for name in made}
        for cluster_set in bundle.sets
    ]
    return {
        "kind": "clusters",
        "model": bundle.model_name,
        "vocab": bundle.fingerprint.vocab,
        "width": bundle.fingerprint.width,
        "sha256": bundle.fingerprint.sha256,
        "directions": directions,
        "memory": bundle.account().as_json(),
    }


def describe_lists(lists: CandidateLists, note: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of candidate lists, where they came from, and the memory that they take."""
    sizes = lists.starts[1:] - lists.starts[:-1]
    return {
        "kind": "candidates",
        **{name: note.get(name) for name in ("model", "align")},
        "pairs": lists.pairs,
        "vocab": lists.vocab,
        "src_vocab": lists.src_vocab,
        "most": lists.count,
        "mean": float(sizes.mean()),
        "without": int((sizes == 0).sum()),
        "always": len(lists.always),
        "memory": {"total": lists.nbytes},
    }


def format_bundle(description: dict[str, Any]) -> str:
    """Return the description as text for a terminal."""
    return _format_clusters(description) if description["kind"] == "clusters" else _format_lists(description)


def _format_clusters(description: dict[str, Any]) -> str:
    from simnmt.base.text_tables import format_table

    rows = [
        [
            direction["label"],
            f"{direction['clusters']:,}",
            str(direction["top"]),
            f"{direction['sentences']:,}",
            f"{direction['contexts']:,}",
            *(_percent(share) for share in (direction["mean"], direction["quantiles"]["p90"], direction["quantiles"]["max"])),
            _percent(direction["batch_20"]),
            f"{direction['emitted']:,}",
            _percent(direction["mean_of_emitted"]),
        ]
        for direction in description["directions"]
    ]
    header = ["direction", "clusters", "K", "sentences", "contexts", "active %", "p90 %", "most %", "batch 20 %"]
    header += ["emitted", "of emitted %"]
    memory = description["memory"]
    share = "" if memory["share"] is None else f", {100 * memory['share']:.2f} % of the model's {_mb(memory['model'])}"
    parts = ("centroids", "norms", "indices", "starts", "flags")
    return "\n".join(
        [
            f"clusters for {description['model'] or 'a model'}: {description['vocab']:,} target tokens, "
            f"contexts of width {description['width']:,}",
            "",
            format_table(header, rows, 1),
            "",
            f"active: of the {description['vocab']:,} tokens, at batch 1, each cluster as often as training met it",
            "batch 20: the same of the union for 20 rows, were their contexts drawn apart from each other",
            "emitted: tokens that dense decoding wrote of the training text",
            "",
            f"memory: {_mb(memory['total'])}{share}",
            "  " + ", ".join(f"{name} {memory[name]:,} bytes" for name in parts),
        ]
    )


def _format_lists(description: dict[str, Any]) -> str:
    learnt = ""
    if description["align"] and description["pairs"]:
        learnt = f", learnt by {description['align']} from {description['pairs']:,} pairs"
    return "\n".join(
        [
            f"candidate lists for {description['model'] or 'a model'}: "
            f"{description['src_vocab']:,} source and {description['vocab']:,} target tokens{learnt}",
            f"a source token has {description['mean']:.1f} candidates on average, {description['most']:,} at most; "
            f"{description['without']:,} have none of their own",
            f"{description['always']:,} candidates of every sentence",
            f"memory: {_mb(description['memory']['total'])}",
        ]
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
