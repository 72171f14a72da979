"""The whole reproduction: the paper's tables, one or more studies of trained models, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.errors import InputError
from simnmt.reproduce.verdicts import Records
from simnmt.reproduce.vocab.cluster_claims import cluster_claims
from simnmt.reproduce.vocab.decoding_claims import decoding_claims
from simnmt.reproduce.vocab.memory_claims import memory_claims
from simnmt.reproduce.vocab.paper_claims import paper_claims
from simnmt.reproduce.vocab.studies import read_studies, shipped_studies

if TYPE_CHECKING:
    from simnmt.calibrate.vocabulary_study import Study

Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what comes next."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and what trained models of ours say of them."""

    studies: Sequence[Study] = ()
    quick: bool = False
    claims: Records = field(default_factory=list)


def judged(studies: Sequence[Study] = (), *, quick: bool = False) -> Reproduction:
    """Verdicts over what was measured, of each study in turn; without one, over what is printed."""
    measured: list[dict[str, Any]] = []
    for study in studies or (None,):
        measured += [*decoding_claims(study), *cluster_claims(study)]
    return Reproduction(studies, quick, [*measured, *memory_claims(), *paper_claims()])


@dataclass(frozen=True, slots=True)
class Texts:
    """What a model is studied on, by the label of a direction; one sentence a line."""

    train: Mapping[str, Path] = field(default_factory=dict)
    """Sources that clusters are made of."""
    targets: Mapping[str, Path] = field(default_factory=dict)
    """Their translations, for candidate lists alone."""
    heldout: Mapping[str, Path] = field(default_factory=dict)
    """Other sources, of every direction in `train`."""
    references: Mapping[str, Path] = field(default_factory=dict)
    """Translations of `heldout`, for BLEU."""


def reproduce(
    *,
    studies: Sequence[Path] | None = None,
    model: Path | None = None,
    texts: Texts | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """The paper's tables with what `studies` say of them; where none is named the shipped ones, if there are some.

    With a `model` and its texts, that model is studied instead, which takes an hour or, if `quick`, minutes; of `studies` the
    one that is named is then the file that its study is kept in, and gone on with.
    Raises `InputError` where a model comes without texts, or texts without a model.
    """
    texts = texts or Texts()
    if model is not None:
        return judged([_studied(model, texts, studies or (), quick, progress)], quick=quick)
    asked = {"--text": texts.train, "--targets": texts.targets, "--heldout": texts.heldout, "--references": texts.references}
    given = [option for option, own in {**asked, "--quick": quick}.items() if own]
    if given:
        raise InputError(f"{given[0]} without a model to study", remedy="give --model FOLDER as well")
    return judged(read_studies(shipped_studies() if studies is None else studies))


def _studied(model: Path, texts: Texts, kept: Sequence[Path], quick: bool, progress: Progress | None) -> Study:
    if len(kept) > 1:
        raise InputError("more than one --study beside --model", remedy="give the one file that its study is kept in")
    if not texts.train or set(texts.train) != set(texts.heldout):
        raise InputError(
            f"--text of {_listed(texts.train)} and --heldout of {_listed(texts.heldout)}",
            remedy="give both for each direction: --text fr-en=FILE --heldout fr-en=FILE",
        )
    for option, own in (("--targets", texts.targets), ("--references", texts.references)):
        if unknown := set(own) - set(texts.train):
            raise InputError(f"{option} of {_listed(unknown)}, which --text does not name", remedy="use the same labels")
    raise NotImplementedError


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(sorted(labels)) or "nothing"
