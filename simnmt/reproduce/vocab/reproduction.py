"""The whole reproduction: the paper's tables, one or more studies of trained models, and the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.costs.projection_bench import ProjectionBench
from simnmt.errors import InputError
from simnmt.reproduce.verdicts import Records
from simnmt.reproduce.vocab.bench_claims import bench_claims
from simnmt.reproduce.vocab.benches import read_benches, shipped_benches
from simnmt.reproduce.vocab.cluster_claims import cluster_claims
from simnmt.reproduce.vocab.decoding_claims import decoding_claims
from simnmt.reproduce.vocab.memory_claims import memory_claims
from simnmt.reproduce.vocab.paper_claims import paper_claims
from simnmt.reproduce.vocab.studies import read_studies, shipped_studies
from simnmt.reproduce.vocab.studying import Say, Texts, study_model

if TYPE_CHECKING:
    from simnmt.calibrate.vocabulary.study.document import Study


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and what trained models of ours say of them."""

    studies: Sequence[Study] = ()
    quick: bool = False
    claims: Records = field(default_factory=list)
    benches: Sequence[ProjectionBench] = ()
    """The output layer by itself, as measured."""


def judged(studies: Sequence[Study] = (), benches: Sequence[ProjectionBench] = (), *, quick: bool = False) -> Reproduction:
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
    texts: Texts | None = None,
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
    texts = texts or Texts()
    layers = read_benches(shipped_benches() if benches is None else benches)
    if model is None:
        given = {**texts.by_option(), "--part": parts, "--quick": quick}
        if asked := [option for option, own in given.items() if own]:
            raise InputError(f"{asked[0]} without a model to study", remedy="give --model FOLDER as well")
        return judged(read_studies(shipped_studies() if studies is None else studies), layers)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --model", remedy="give the one file that its study is kept in")
    kept = studies[0] if studies else None
    return judged([study_model(model, texts, kept=kept, parts=parts, quick=quick, say=say)], layers, quick=quick)
