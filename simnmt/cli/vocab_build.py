"""What `simnmt vocab build` does with its options: texts read, bundle made and written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from simnmt.nmt.translation import Translator

CLUSTERS, TOP, SENTENCES = 100, 5, 30_000
Progress = Callable[[str, float | None], None]


def told_apart(texts: list[str]) -> dict[str, Path]:
    """The file of each label; a file without one is called what it is without its ending."""
    found: dict[str, Path] = {}
    for text in texts:
        label, _, named = text.partition("=")
        if not named or Path(text).exists():
            label, named = Path(text).stem, text
        if not label or label in found:
            what = f"{text}: a second text {label}" if label else f"{text}: no label"
            raise typer.BadParameter(f"{what}; give each its own, as in fr-en=news.fr", param_hint="--text")
        found[label] = Path(named)
    return found


def build_sets(
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
    from simnmt.cli.vocab_told import told_of_clusters
    from simnmt.nmt.vocabulary.build_clusters import build_clusters, evenly

    taken = {}
    for label, path in texts.items():
        lines = _lines(path)
        taken[label] = evenly(lines, sentences or SENTENCES)
        if len(taken[label]) < len(lines):
            _note(f"{label}: {len(taken[label]):,} of {len(lines):,} lines, evenly spread; --sentences takes more")
    given = {"clusters": CLUSTERS, "top": TOP} | {name: value for name, value in options.items() if value is not None}
    bundle = build_clusters(translator, taken, name=name, progress=progress, **given)
    bundle.save(out)
    return told_of_clusters(bundle)


def build_lists(
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
    """Build candidate lists, write them, and tell what they are."""
    from simnmt.cli.vocab_told import told_of_lists
    from simnmt.nmt.errors import NmtError
    from simnmt.nmt.vocabulary.build_candidates import build_candidates
    from simnmt.nmt.vocabulary.build_clusters import evenly

    if options["align"] not in (None, "ibm1", "attention"):
        raise NmtError(f"no alignment by {options['align']}", remedy="take ibm1 or attention")
    ours, theirs = _lines(source), _lines(targets)
    if len(ours) != len(theirs):
        raise NmtError(f"{len(ours):,} sources but {len(theirs):,} targets", remedy="line i must translate line i")
    count = min(len(ours), sentences or len(ours))

    def tell(done: int) -> None:
        if progress is not None:
            progress("aligning", done / count)

    given = {name: value for name, value in options.items() if value is not None}
    lists = build_candidates(translator, evenly(ours, count), evenly(theirs, count), progress=tell, **given)
    if lists.pairs != count:
        left = count - (lists.pairs or 0)
        _note(f"{left:,} of {count:,} pairs left out: a side is empty, or longer than the model takes")
    note = {"model": name, "align": options["align"] or "ibm1"}
    lists.save(out, translator.model, note)
    return told_of_lists(lists, note)


def _lines(path: Path) -> list[str]:
    from simnmt.workload.text_lines import TextLines

    return list(TextLines(path, kept="all"))


def _note(text: str) -> None:
    print(f"simnmt: note: {text}", file=sys.stderr)
