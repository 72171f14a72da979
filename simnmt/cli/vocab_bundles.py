"""Build vocabulary bundles from texts, and describe their active shares and their memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simnmt.base.text_tables import format_table
from simnmt.cli.terminal import note
from simnmt.nmt.translation import Translator

if TYPE_CHECKING:
    from simnmt.nmt.step_model import StepModel
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
    from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle

CLUSTERS, TOP, SENTENCES = 100, 5, 30_000
Progress = Callable[[str, float | None], None]


def texts_by_label(texts: list[str]) -> dict[str, Path]:
    """Return the files by label; the default label of a file is its name without the extension."""
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
    progress: Progress,
    *,
    name: str,
    **options: Any,
) -> ClusterDescription:
    """Build clusters, write them, and return their description."""
    from simnmt.nmt.vocabulary.cluster_bundle import build_clusters

    taken = {}
    for label, path in texts.items():
        lines = _lines(path)
        taken[label] = _sample_evenly(lines, sentences or SENTENCES)
        if len(taken[label]) < len(lines):
            note(f"{label}: {len(taken[label]):,} of {len(lines):,} lines, evenly spread; --sentences takes more")
    given = {"clusters": CLUSTERS, "top": TOP} | {name: value for name, value in options.items() if value is not None}
    bundle = build_clusters(translator, taken, name=name, progress=progress, **given)
    bundle.save(out)
    return ClusterDescription(bundle)


def build_list_bundle(
    translator: Translator,
    source: Path,
    targets: Path,
    out: Path,
    sentences: int | None,
    progress: Progress,
    *,
    name: str,
    **options: Any,
) -> ListDescription:
    """Build and write candidate lists, and return their description."""
    from simnmt.nmt.errors import NmtError
    from simnmt.nmt.vocabulary.candidate_lists import build_candidates

    ours, theirs = _lines(source), _lines(targets)
    if len(ours) != len(theirs):
        raise NmtError(f"{len(ours):,} sources but {len(theirs):,} targets", remedy="line i must translate line i")
    count = min(len(ours), sentences or len(ours))

    given = {name: value for name, value in options.items() if value is not None}
    given["progress"] = lambda done: progress("aligning", done / count)
    lists = build_candidates(translator, _sample_evenly(ours, count), _sample_evenly(theirs, count), **given)
    if lists.pairs != count:
        left = count - (lists.pairs or 0)
        note(f"{left:,} of {count:,} pairs left out: a side is empty")
    lists.save(out, translator.model, {"model": name})
    return ListDescription(lists, name)


def _lines(path: Path) -> list[str]:
    from simnmt.nmt.errors import NmtError
    from simnmt.workload.text_lines import TextLines

    lines = list(TextLines(path, kept=True))
    if not any(line.strip() for line in lines):
        raise NmtError("no sentence", path=path, remedy="give text with one sentence a line")
    return lines


def _sample_evenly(lines: list[str], count: int) -> list[str]:
    """Return `count` lines, evenly spread over all and in their order; all lines if they are no more."""
    return lines if count >= len(lines) else [lines[at * len(lines) // count] for at in range(count)]


def describe_bundle(file: Path, model: Path | None) -> Description:
    """Return the description of a bundle of either kind. Raises `NmtError`, also for a bundle of another model."""
    from simnmt.nmt.models import load_model
    from simnmt.nmt.vocabulary.bundle_file import read_bundle
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
    from simnmt.nmt.vocabulary.cluster_bundle import KIND, load_clusters

    loaded: StepModel | None = None if model is None else load_model(str(model)).model
    bundle = read_bundle(file)
    if bundle.kind == KIND:
        return ClusterDescription(load_clusters(file, loaded))
    return ListDescription(CandidateLists.load(file, loaded), bundle.note.get("model"))


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Active shares by direction, their origin, and the memory of a bundle of clusters."""

    bundle: ClusterBundle

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        from simnmt.nmt.vocabulary.cluster_bundle import active_shares

        bundle, memory = self.bundle, self.bundle.memory()
        total = sum(memory.values())
        return {
            "kind": "clusters",
            "model": bundle.model_name,
            **bundle.fingerprint,
            "directions": [active_shares(clusters) for clusters in bundle.sets],
            "memory": memory | {"model": bundle.model_bytes, "total": total, "share": total / bundle.model_bytes},
        }

    def text(self) -> str:
        """Return the description for a terminal."""
        facts = self.as_json()
        memory, tokens = facts["memory"], f"{facts['vocab']:,}"
        header = ["direction", "clusters", "K", "sentences", "contexts", "active %", "p90 %", "most %"]
        header += ["emitted", "of emitted %"]
        parts = ("centroids", "norms", "indices", "starts", "flags")
        return "\n".join(
            [
                f"clusters for {self.bundle.model_name or 'a model'}: {tokens} target tokens, "
                f"contexts of width {facts['width']:,}",
                "",
                format_table(header, [_direction_row(shares) for shares in facts["directions"]], 1),
                "",
                f"active: of the {tokens} tokens, at batch 1, each cluster as often as training met it",
                "emitted: tokens that dense decoding wrote of the training text",
                "",
                f"memory: {_mb(memory['total'])}, {100 * memory['share']:.2f} % of the model's {_mb(memory['model'])}",
                "  " + ", ".join(f"{name} {memory[name]:,} bytes" for name in parts),
            ]
        )


def _direction_row(shares: dict[str, Any]) -> list[str]:
    quantiles = shares["quantiles"]
    return [
        shares["label"],
        *(f"{shares[name]:,}" for name in ("clusters", "top", "sentences", "contexts")),
        *map(_percent, (shares["mean"], quantiles["p90"], quantiles["max"])),
        f"{shares['emitted']:,}",
        _percent(shares["mean_of_emitted"]),
    ]


@dataclass(frozen=True, slots=True)
class ListDescription:
    """Sizes of candidate lists, their origin, and the memory that they take."""

    lists: CandidateLists
    model: str | None

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        lists, sizes = self.lists, self.lists.starts[1:] - self.lists.starts[:-1]
        total = sum(array.nbytes for array in (lists.starts, lists.columns, lists.always))
        return {
            "kind": "candidates",
            "model": self.model,
            "pairs": lists.pairs,
            "vocab": lists.vocab,
            "src_vocab": len(sizes),
            "most": int(sizes.max()),
            "mean": float(sizes.mean()),
            "without": int((sizes == 0).sum()),
            "always": len(lists.always),
            "memory": {"total": total},
        }

    def text(self) -> str:
        """Return the description for a terminal."""
        lists, facts = self.lists, self.as_json()
        learnt = f", learnt from {lists.pairs:,} pairs" if lists.pairs else ""
        return "\n".join(
            [
                f"candidate lists for {self.model or 'a model'}: "
                f"{facts['src_vocab']:,} source and {lists.vocab:,} target tokens{learnt}",
                f"a source token has {facts['mean']:.1f} candidates on average, {facts['most']:,} at most; "
                f"{facts['without']:,} have none of their own",
                f"{len(lists.always):,} candidates of every sentence",
                f"memory: {_mb(facts['memory']['total'])}",
            ]
        )


Description = ClusterDescription | ListDescription


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
