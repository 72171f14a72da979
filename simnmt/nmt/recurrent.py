"""Encoder and decoder of LSTM or GRU cells with Luong's attention (CNMT-13): a step model, and trainable."""

from __future__ import annotations

from torch import Tensor, nn

from simnmt.nmt.architecture import RecurrentArchitecture


class RecurrentModel(nn.Module):
    """A step model; `forward` is for training with the reference fed (teacher forcing)."""

    def __init__(self, architecture: RecurrentArchitecture) -> None:
        super().__init__()
        self.architecture = architecture

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits [batch, tgt_len, vocab] after each of the fed tokens `tgt_in`, int64 [batch, tgt_len], start token first."""
        raise NotImplementedError
