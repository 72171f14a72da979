"""The output layer that a search is asked to use: plain, fused, or over a part of the vocabulary."""

from __future__ import annotations

from simnmt.nmt.banned import Banned
from simnmt.nmt.fused_output import FusedOutput
from simnmt.nmt.output_layer import OutputLayer, PlainOutput
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary, VocabularySubset
from simnmt.nmt.vocabulary.subset_output import SubsetOutput


def output_layer(
    model: StepModel, banned: Banned, fused: bool, vocabulary: RestrictedVocabulary | None
) -> tuple[OutputLayer, VocabularySubset | None]:
    """Its layer, and what must be told who joins and leaves; a part of the vocabulary says itself how it is searched."""
    if vocabulary is None:
        return (FusedOutput if fused else PlainOutput)(model, banned), None
    subset = vocabulary.begin()
    return SubsetOutput(model, banned, vocabulary, subset), subset
