"""What a decoder asks of a part of the vocabulary: which columns of the output layer this step multiplies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from torch import Tensor

from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.subset_account import SubsetAccount

if TYPE_CHECKING:
    from simnmt.costs.projection_cost import ProjectionCost
    from simnmt.nmt.vocabulary.sub_matrix_cache import SubMatrixCache


class Active(NamedTuple):
    """The active columns of a step, and what they are known by."""

    columns: Tensor
    """int32 [columns], ascending, on the model's device."""
    key: Hashable
    """Equal keys have equal columns, whatever chose them."""


class VocabularySubset(Protocol):
    """Chooses the active columns for the sentences under way; one belongs to one decoder and changes with it."""

    @property
    def label(self) -> str:
        """What it is, for people."""

    def columns(self, hidden: Tensor) -> Active:
        """For all rows together, of what the decoder's body left, [rows, width] (FVP-06); no row: no column."""

    def join(self, sources: Sequence[Sequence[int]], beam: int) -> None:
        """So many sentences of these source tokens are appended, of `beam` rows each."""

    def leave(self, order: Sequence[int]) -> None:
        """Sentence i becomes what sentence `order[i]` was; the others are gone."""


@dataclass(frozen=True, slots=True)
class RestrictedVocabulary:
    """What decoders are handed as `vocabulary`: how active columns are chosen, and how they are multiplied and searched."""

    label: str
    """What it is, for people."""
    vocab: int
    """Target tokens of the model that it is for."""
    width: int | None
    """Of what that model's output layer projects; None where any does."""
    begin: Callable[[], VocabularySubset]
    """A subset for a decoder that starts, without any sentence."""
    reads_sources: bool
    """Whether the active columns hang on source tokens."""
    scatter: bool = False
    """The paper's way: products are scattered into [rows, vocab], the rest minus infinity, and softmax and search go over all
    (FVP-07). Otherwise they go to the fused kernel as they are, and its answers are mapped back (XP-02): the same tokens."""
    audit: bool = False
    """Make the dense products too, and count the rows whose likeliest token is not active (FVP-08). Changes no output."""
    cost: ProjectionCost | None = None
    """Says how a product is made, and whether a copied sub-matrix pays. None: by the number of rows alone, which is the same at
    each run, and no copy is kept."""
    cache: SubMatrixCache | None = None
    """Where copies are kept."""
    account: SubsetAccount | None = None
    """Is told of every step."""
    clusters: int = 0
    """Centroids that each row is compared with; 0 where it is none."""

    def check(self, model: StepModel) -> None:
        """Raises `NmtError` for a model with another vocabulary or width than this is for."""
        width = model.weight.shape[1]
        if self.vocab != model.vocab or self.width not in (None, width):
            own = f"{self.vocab:,} tokens" + ("" if self.width is None else f" and width {self.width:,}")
            what = f"the vocabulary's parts ({self.label}) are of {own}, the model of {model.vocab:,} and {width:,}"
            raise NmtError(what, remedy="build them with this model: simnmt vocab build")
