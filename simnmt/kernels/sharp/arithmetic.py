"""The arithmetic of a decoder's settings, for the search in numpy."""

from __future__ import annotations

import numpy as np

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.sharp.reference_member import Arithmetic, plain


def arithmetic(settings: DecoderSettings) -> Arithmetic:
    """float32 with the settings' noise (SHARP-05, SHARP-08). What is an identity (SHARP-06, 07, 09) leaves no trace here."""
    return plain(np.float32)
