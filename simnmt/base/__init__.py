"""The base of every room: errors, files, random numbers, suggestions in messages, configuration models, kinds of users.

To read it, start with `errors.py` (errors that name place and remedy), `files.py` (bounded reading, atomic writing) and
`random_streams.py` (random numbers keyed by purpose). It imports no other room, and this file imports nothing.
"""

from __future__ import annotations

VERSION = "0.2.0"
"""Version of simnmt."""
