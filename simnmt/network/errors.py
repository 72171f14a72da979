"""The error of this room: an RTT series, a bandwidth or a link that cannot be used."""

from __future__ import annotations

from simnmt.base.errors import InputError


class TraceError(InputError):
    """An RTT series or a link that cannot be used as given."""
