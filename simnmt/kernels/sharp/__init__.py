"""The sharp decoder (SHARP-01): beam search of one sentence by an attentional decoder, each of its techniques a switch."""

from simnmt.kernels.sharp.decoder import SharpDecoder, decode_ensemble
from simnmt.kernels.sharp.translation import ForcedSteps, SharpTranslation, StageSeconds
from simnmt.kernels.sharp.weights import Attention, BottomCell, SharpTokens, SharpWeights, StackLayer

__all__ = [
    "Attention",
    "BottomCell",
    "ForcedSteps",
    "SharpDecoder",
    "SharpTokens",
    "SharpTranslation",
    "SharpWeights",
    "StackLayer",
    "StageSeconds",
    "decode_ensemble",
]
