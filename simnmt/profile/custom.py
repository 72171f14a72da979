"""Devices that users bring: a cost function `(src_len, tgt_len) -> seconds`, or a device profile made in Python."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import VERSION
from simnmt.base.configuration import EndOfSentence
from simnmt.base.extension import FAULTS, Extended, Extension, ExtensionError, describe_fault
from simnmt.profile.blocks import Execution
from simnmt.profile.cost import Plane
from simnmt.profile.device_profile import SCHEMA_VERSION, DeviceProfile
from simnmt.profile.execution_fit import bounded_least_squares
from simnmt.profile.origin import Device, LengthUnit, Model, Provenance, ValidRange

Tokens = NDArray[np.int64]
Seconds = NDArray[np.float64]
GIVEN = ("src_len", "tgt_len")
"""Arguments of a cost function, arrays of shape (requests,)."""
VOCABULARY = 50_000
"""Words of the vocabulary that decides the bytes of a token on the link, which a cost function does not state."""


class CustomDevice(Extended):
    """The configuration of a device whose costs a user brings."""

    @property
    def profile(self) -> DeviceProfile | None:
        """The device profile that was brought; None for a cost function."""
        value = self.extension.value
        if isinstance(value, DeviceProfile) or _is_cost(self.extension):
            return value if isinstance(value, DeviceProfile) else None
        made = self.extension.make()
        if not isinstance(made, DeviceProfile):
            what = f"{self.kind} returned a {type(made).__name__}, which is no DeviceProfile"
            raise ExtensionError(what, remedy="return one, or take the parameters src_len and tgt_len and return seconds")
        return made

    def seconds(self, src_len: Tokens, tgt_len: NDArray[Any]) -> Seconds:
        """Return the seconds of requests alone by the cost function, shape (requests,). Raises `ExtensionError`."""
        extension, value = self.extension, self.extension.value
        function: Any = extension.make() if isinstance(value, type) else partial(value, **extension.parameters)
        try:
            returned = np.asarray(function(src_len, tgt_len), dtype=np.float64)
        except FAULTS as error:
            raise extension.fault(f"cost function {extension.label} raised {describe_fault(error)}") from error
        if returned.shape not in ((), (1,), src_len.shape):
            what = f"cost function {extension.label} returned the shape {returned.shape}"
            raise extension.fault(what, f"return {src_len.size} seconds")
        seconds = np.broadcast_to(returned, src_len.shape)
        sound = np.isfinite(seconds) & (seconds >= 0.0)
        if not sound.all():
            at = int(np.argmin(sound))
            what = f"cost function {extension.label} returned {seconds[at]} s for {src_len[at]} and {tgt_len[at]} tokens"
            raise extension.fault(what, "return finite seconds from 0 on")
        return seconds


def custom_device(extension: Extension) -> CustomDevice:
    """Return the configuration of a user's device. Raises `ExtensionError` for what is neither profile nor cost function."""
    value = extension.value
    is_factory = not isinstance(value, type) and callable(value) and extension.code is not None
    if not (isinstance(value, DeviceProfile) or _is_cost(extension) or is_factory):
        what = f"{extension.label} is neither a DeviceProfile nor a cost function"
        raise ExtensionError(what, remedy="write a function of (src_len, tgt_len), arrays of tokens, that returns seconds")
    return CustomDevice.of(extension)


def _is_cost(extension: Extension) -> bool:
    value = extension.value
    if isinstance(value, type):
        return any("__call__" in vars(base) for base in value.__mro__[:-1])
    return callable(value) and (extension.code is None or all(map(extension.takes, GIVEN)))


def profile_of_cost(
    device: CustomDevice, src_len: Tokens, tgt_len: Tokens, count: Tokens, unit: tuple[str, str], ends: EndOfSentence
) -> DeviceProfile:
    """Return a profile whose plane is fitted to a cost function on pairs of lengths, for what needs a plane.

    `src_len`, `tgt_len`, `count`: the pairs, and how often each occurs, shape (pairs,); `unit`: source and target unit of the
    lengths; `ends`: which lengths count the end-of-sentence token. Raises `ExtensionError` if no request takes any time.
    """
    label, seconds = device.extension.label, device.seconds(src_len, tgt_len)
    weight = np.sqrt(count.astype(np.float64))
    design = np.column_stack([src_len, tgt_len, np.ones(len(src_len))]) * weight[:, None]
    coefficients = bounded_least_squares(design, seconds * weight).tolist()
    if sum(coefficients) < 1e-12:
        raise ExtensionError(f"cost function {label}: no request takes any time", remedy="return seconds above 0")
    return DeviceProfile(
        schema_version=SCHEMA_VERSION,
        name=label,
        device=Device(name=label),
        model=Model(name="cost function", vocab=VOCABULARY),
        length_unit=LengthUnit(src=unit[0], tgt=unit[1], end_of_sentence=ends),
        valid_range=ValidRange(src_len=(0, 10**9), tgt_len=(0, 10**9)),
        execution=Execution(kind="synthetic", plane=Plane(*coefficients), residual_relative_sd=0.0),
        provenance=Provenance(source="a cost function in Python", date="", tool=f"simnmt {VERSION}"),
    )
