"""Errors of this room: corpora and length tables, arrival traces and rate series that cannot be used."""

from __future__ import annotations

from simnmt.base.errors import InputError


class CorpusError(InputError):
    """Parallel text or a length table that cannot be used."""


class ArrivalsError(InputError):
    """A recorded trace or a rate series that cannot be used."""
