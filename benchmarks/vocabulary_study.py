"""What clusters and candidate lists come to on a trained model: `python -m benchmarks.vocabulary_study --model FOLDER ...`

`simnmt reproduce vocab --model` studies a model as the shipped studies are, and judges it. Here one says how much is measured
of each part: how many sentences, which r and K, how many rounds, on how many threads, with contexts kept wherever one likes.

Each `--direction` names a language direction and its texts, one sentence a line: `LABEL=TRAIN,TARGETS,HELDOUT,REFERENCES`;
TARGETS and REFERENCES may be left empty, for a direction without candidate lists or without BLEU. With
`--out` every part is added to the file as soon as it is measured; what is in it stays. `simnmt reproduce vocab --study` shows
it. The parts chosen, speeds and candidates time real decoding: leave the box alone meanwhile.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from simnmt.base.errors import SimnmtError
from simnmt.papers.fvp.study import PARTS, Study, StudySettings
from simnmt.papers.fvp.study_run import run_study
from simnmt.papers.fvp.study_texts import Direction

_COUNTS = (
    "train_sentences",
    "clustered_contexts",
    "heldout_sentences",
    "volumes",
    "rounds",
    "speed_sentences",
    "tried_sentences",
    "candidates",
    "shown_clusters",
)
_LISTS = ("clusters", "tops", "fine_clusters", "fine_tops", "volume_clusters", "language_clusters", "speed_clusters")


def main(argv: list[str] | None = None) -> int:
    """Measure what is asked; 2 for wrong input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder that simnmt nmt train wrote")
    parser.add_argument("--direction", action="append", required=True, metavar="LABEL=TRAIN,TARGETS,HELDOUT,REFERENCES")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, help="the study's file, made or added to")
    parser.add_argument("--kept", type=Path, help="folder for decoded contexts, so that no part decodes them again")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--chosen", action="append", default=[], metavar="LABEL=R:K", help="instead of the choice by trial")
    parser.add_argument("--json", action="store_true", help="print the study")
    for name in _COUNTS:
        parser.add_argument(_option(name), type=_count)
    for name in _LISTS:
        parser.add_argument(_option(name), type=_count, nargs="+")
    parser.add_argument("--always", type=int, choices=range(100_000), metavar="COUNT", nargs="+")
    given = parser.parse_args(argv)
    own = {name: getattr(given, name) for name in _COUNTS if getattr(given, name) is not None}
    own |= {name: tuple(getattr(given, name)) for name in (*_LISTS, "always") if getattr(given, name) is not None}
    try:
        settings = StudySettings(**own, chosen=dict(map(_choice, given.chosen)))
        study = run_study(
            given.model,
            [_direction(each) for each in given.direction],
            settings=settings,
            parts=given.parts,
            out=given.out,
            kept=given.kept,
            threads=given.threads,
            progress=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except SimnmtError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    print(study.model_dump_json(indent=1) if given.json else "\n".join(_told(study)))
    return 0


def _told(study: Study) -> list[str]:
    """The study in a few lines for each part."""
    lines = [f"{study.model.name}: V {study.model.vocab:,}, d {study.model.width:,}"]
    for part in ("sweep", "volume", "by_language"):
        lines += [
            f"{part:12} {each.label} {each.knowledge:6} r {each.clusters:5,} K {each.top} of {each.training_contexts:9,}: "
            f"active {each.share.mean:6.2%} (most {each.share.most:6.2%}; {each.union_rows} rows {each.union.mean:6.2%}), "
            f"missed {each.miss_rate:6.2%}, identical {each.identical:6.1%}"
            for each in getattr(study, part)
        ]
    lines += [
        f"memory       {each.label} r {each.clusters:5,} K {each.top}: {each.total_bytes / 1e6:.2f} MB, "
        f"{each.total_bytes / study.model.parameter_bytes:.2%} of the model"
        for each in study.memory
    ]
    lines += [
        f"tried        {each.label} r {each.clusters:,} K {each.top} beam {each.beam} batch {each.batch}: "
        f"identical {each.identical:6.1%}, BLEU {_score(each.bleu_dense)} -> {_score(each.bleu)}"
        + ("" if each.good else ", too poor")
        for each in study.tried
    ]
    for part in ("chosen", "candidates"):
        lines += [
            f"{part:12} {each.label} {_cut(each)} beam {each.beam} batch {each.batch}: active {each.share.mean:6.2%}, "
            f"missed {each.miss_rate:6.2%}, identical {each.identical:6.1%}, "
            f"BLEU {_score(each.dense.bleu)} -> {_score(each.part.bleu)}, "
            f"layer x{each.layer_ratio:.2f} (fused x{each.layer_ratio_over_fused:.2f}) of {each.layer_share:.0%}, "
            f"whole x{each.measured:.2f} (Amdahl x{each.predicted:.2f}; over fused x{each.measured_over_fused:.2f})"
            for each in getattr(study, part)
        ]
    lines += [
        f"speeds       {each.label} r {each.clusters:5,} K {each.top} beam {each.beam} batch {each.batch}: {each.gain:+.1%}"
        + ("" if each.identical is None else f", identical {each.identical:6.1%}")
        for each in study.speeds
    ]
    return lines


def _cut(each: Any) -> str:
    return (
        f"r {each.clusters:,} K {each.top}"
        if each.selection == "clustered"
        else f"{each.selection} {each.candidates}+{each.always}"
    )


def _score(bleu: float | None) -> str:
    return "-" if bleu is None else f"{bleu:.2f}"


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give 1 or more")
    return int(text)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _direction(text: str) -> Direction:
    label, _, files = text.partition("=")
    paths = [Path(each) if each else None for each in files.split(",")]
    if not label or len(paths) != 4 or paths[0] is None or paths[2] is None:
        raise SystemExit(f"{text}: give LABEL=TRAIN,TARGETS,HELDOUT,REFERENCES")
    train, targets, heldout, references = paths
    return Direction(label, train, heldout, references, targets)


def _choice(text: str) -> tuple[str, tuple[int, int]]:
    label, _, both = text.partition("=")
    clusters, _, top = both.partition(":")
    try:
        return label, (_count(clusters), _count(top))
    except argparse.ArgumentTypeError:
        raise SystemExit(f"{text}: give LABEL=R:K") from None


if __name__ == "__main__":
    sys.exit(main())
