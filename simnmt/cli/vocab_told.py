"""What a vocabulary bundle activates and holds, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simnmt.nmt.step_model import StepModel
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
    from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle


def told_of(file: Path, model: Path | None) -> dict[str, Any]:
    """What a bundle of either kind is. Raises `NmtError`, also where it is not of the model in that folder."""
    from simnmt.nmt.models import load_model
    from simnmt.nmt.vocabulary.bundle_file import read_bundle
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
    from simnmt.nmt.vocabulary.cluster_bundle import KIND, load_clusters

    loaded: StepModel | None = None if model is None else load_model(str(model)).model
    bundle = read_bundle(file)
    if bundle.kind == KIND:
        return told_of_clusters(load_clusters(file, loaded))
    return told_of_lists(CandidateLists.load(file, loaded), bundle.note)


def told_of_clusters(bundle: ClusterBundle) -> dict[str, Any]:
    """Active shares by direction, where they came from, and the memory account."""
    from simnmt.nmt.vocabulary.active_shares import ActiveShares

    made = ("beam", "inertia", "iterations", "method", "seed")
    directions = [ActiveShares.of(each).as_json() | {name: getattr(each, name) for name in made} for each in bundle.sets]
    return {
        "kind": "clusters",
        "model": bundle.model_name,
        "vocab": bundle.fingerprint.vocab,
        "width": bundle.fingerprint.width,
        "sha256": bundle.fingerprint.sha256,
        "directions": directions,
        "memory": bundle.account().as_json(),
    }


def told_of_lists(lists: CandidateLists, note: Mapping[str, Any]) -> dict[str, Any]:
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


def text_of(told: dict[str, Any]) -> str:
    """For a terminal."""
    return _clusters_text(told) if told["kind"] == "clusters" else _lists_text(told)


def _clusters_text(told: dict[str, Any]) -> str:
    from simnmt.cli.tables import aligned

    rows = [
        [
            each["label"],
            f"{each['clusters']:,}",
            str(each["top"]),
            f"{each['sentences']:,}",
            f"{each['contexts']:,}",
            *(_percent(share) for share in (each["mean"], each["quantiles"]["p90"], each["quantiles"]["max"])),
            _percent(each["batch_20"]),
            f"{each['emitted']:,}",
            _percent(each["mean_of_emitted"]),
        ]
        for each in told["directions"]
    ]
    header = ["direction", "clusters", "K", "sentences", "contexts", "active %", "p90 %", "most %", "batch 20 %"]
    header += ["emitted", "of emitted %"]
    memory = told["memory"]
    share = "" if memory["share"] is None else f", {100 * memory['share']:.2f} % of the model's {_mb(memory['model'])}"
    parts = ("centroids", "norms", "indices", "starts", "flags")
    return "\n".join(
        [
            f"clusters for {told['model'] or 'a model'}: {told['vocab']:,} target tokens, contexts of width {told['width']:,}",
            "",
            aligned(header, rows, 1),
            "",
            f"active: of the {told['vocab']:,} tokens, at batch 1, each cluster as often as training met it",
            "batch 20: the same of the union for 20 rows, were their contexts drawn apart from each other",
            "emitted: tokens that dense decoding wrote of the training text",
            "",
            f"memory: {_mb(memory['total'])}{share}",
            "  " + ", ".join(f"{name} {memory[name]:,} bytes" for name in parts),
        ]
    )


def _lists_text(told: dict[str, Any]) -> str:
    learnt = f", learnt by {told['align']} from {told['pairs']:,} pairs" if told["align"] and told["pairs"] else ""
    return "\n".join(
        [
            f"candidate lists for {told['model'] or 'a model'}: "
            f"{told['src_vocab']:,} source and {told['vocab']:,} target tokens{learnt}",
            f"a source token has {told['mean']:.1f} candidates on average, {told['most']:,} at most; "
            f"{told['without']:,} have none of their own",
            f"{told['always']:,} candidates of every sentence",
            f"memory: {_mb(told['memory']['total'])}",
        ]
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
