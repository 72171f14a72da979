"""MarianMT through `transformers`: a step model with key/value cache, and trainable. Never touches the network."""

from __future__ import annotations

from torch import Tensor, nn

from simnmt.nmt.architecture import TransformerArchitecture


class MarianModel(nn.Module):
    """A step model; `forward` is for training with the reference fed (teacher forcing)."""

    def __init__(self, architecture: TransformerArchitecture) -> None:
        super().__init__()
        self.architecture = architecture

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits [batch, tgt_len, vocab] after each of the fed tokens `tgt_in`, int64 [batch, tgt_len], start token first."""
        raise NotImplementedError
