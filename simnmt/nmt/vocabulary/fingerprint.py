"""Which model's output layer a bundle belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from simnmt.configuration import checked_dataclass
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells one output layer from another."""

    vocab: int
    width: int
    sha256: str
    """Of its weights and bias in float32: a model that is loaded in another type has another, so take it before the change."""

    @classmethod
    def of(cls, model: StepModel) -> Fingerprint:
        """Of a loaded model."""
        digest = hashlib.sha256()
        for part in (model.weight, model.bias):
            if part is not None:
                digest.update(part.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
        vocab, width = model.weight.shape
        return cls(vocab, width, digest.hexdigest())

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> Fingerprint:
        """Of what a bundle's note says; raises `KeyError` and `ValueError` where it says anything else."""
        return checked_dataclass(cls, {name: note[name] for name in ("vocab", "width", "sha256")})

    def check(self, model: StepModel) -> None:
        """Raise `NmtError` where the bundle with this fingerprint is not of that model."""
        found = Fingerprint.of(model)
        remedy = "build one for this model with simnmt vocab build"
        if found.vocab != self.vocab:
            raise NmtError(f"a bundle for {self.vocab:,} target tokens, and a model of {found.vocab:,}", remedy=remedy)
        if found.width != self.width:
            raise NmtError(f"a bundle for contexts of width {self.width:,}, and a model of {found.width:,}", remedy=remedy)
        if found.sha256 != self.sha256:
            raise NmtError("a bundle of another model: its output weights are not this one's", remedy=remedy)


def control_tokens(model: StepModel) -> tuple[int, ...]:
    """Return the tokens that every active set holds, ascending: the end and the unknown word (FVP-04).

    Neither padding nor the start token: no search may choose the one, and no model writes the other.
    """
    return tuple(sorted({model.eos_token, model.unk_token}))


def model_bytes(model: StepModel) -> int:
    """Bytes of all weights and buffers, shared ones once."""
    assert isinstance(model, nn.Module), "a torch module"
    sizes = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in model.state_dict().values()}
    return sum(sizes.values())
