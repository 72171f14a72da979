"""What can be wrong with a network: its RTT series, its bandwidth."""

from __future__ import annotations

from simnmt.base.errors import InputError


class TraceError(InputError):
    """An RTT series or a link that cannot be used as given."""
