"""The whole reproduction: what the paper's text gives, studies of classifiers, a measured pipeline, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.errors import InputError
from simnmt.reproduce.sti.accuracy_claims import accuracy_claims
from simnmt.reproduce.sti.fidelity_claims import fidelity_claims
from simnmt.reproduce.sti.paper_claims import paper_claims
from simnmt.reproduce.sti.pipeline_claims import pipeline_claims
from simnmt.reproduce.sti.pipelines import read_pipeline, shipped_pipeline
from simnmt.reproduce.sti.resource_claims import resource_claims
from simnmt.reproduce.sti.studies import read_studies, shipped_studies
from simnmt.reproduce.sti.studying import Say, Studied, study_model
from simnmt.reproduce.verdicts import Records

if TYPE_CHECKING:
    from simnmt.calibrate.sti_study.document import Study


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and what trained classifiers and a real pipeline of ours say of them."""

    studies: Sequence[Study] = ()
    pipeline: Mapping[str, Any] | None = None
    """What `python -m benchmarks.sti_pipeline --out` wrote."""
    claims: Records = field(default_factory=list)


def judged(studies: Sequence[Study] = (), pipeline: Mapping[str, Any] | None = None) -> Reproduction:
    """Verdicts over what was measured, of each study in turn; without one, over what is printed."""
    claims: Records = []
    for study in studies or (None,):
        claims += [*accuracy_claims(study), *resource_claims(study), *fidelity_claims(study)]
    claims += [*pipeline_claims(pipeline), *paper_claims()]
    return Reproduction(studies, pipeline, claims)


def reproduce(
    *,
    studies: Sequence[Path] | None = None,
    pipeline: Path | None = None,
    studied: Studied | None = None,
    say: Say = lambda _: None,
) -> Reproduction:
    """What the paper's text gives with what `studies` and `pipeline` say of it; of either the shipped ones where none is named.

    With `studied` that model is studied instead, minutes on one core; of `studies` the one that is named is then the file that
    its study is kept in and gone on with. Raises `InputError`.
    """
    measured = read_pipeline(pipeline) if pipeline is not None else shipped_pipeline()
    if studied is None or not studied.asked:
        return judged(read_studies(shipped_studies() if studies is None else studies), measured)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --store", remedy="give the one file that its study is kept in")
    return judged([study_model(studied, studies[0] if studies else None, say)], measured)
