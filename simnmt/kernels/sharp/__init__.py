"""The sharp decoder (SHARP-01): a source encoder and a beam search of one sentence, each of their techniques a switch."""

from simnmt.kernels.sharp.decoder import SharpDecoder, SourceEncoder, decode_ensemble
from simnmt.kernels.sharp.model import (
    Attention,
    BottomCell,
    ForcedSteps,
    SharpTokens,
    SharpTranslation,
    SharpWeights,
    SourceDirection,
    SourceLayer,
    SourceWeights,
    StackLayer,
    StageSeconds,
)

__all__ = [
    "Attention",
    "BottomCell",
    "ForcedSteps",
    "SharpDecoder",
    "SharpTokens",
    "SharpTranslation",
    "SharpWeights",
    "SourceDirection",
    "SourceEncoder",
    "SourceLayer",
    "SourceWeights",
    "StackLayer",
    "StageSeconds",
    "decode_ensemble",
]
