"""What can be wrong with a training."""

from __future__ import annotations

from simnmt.nmt.errors import NmtError, need


class TrainingError(NmtError):
    """A corpus, a recipe or a folder that nothing can be trained with: says which, and the remedy."""


def need_all() -> None:
    """See that all is installed that training takes, before anything long begins; raises `NmtError`."""
    for package in ("torch", "transformers", "sentencepiece", "sacrebleu"):
        need(package)
