"""What all papers share: claims with verdicts (`claim.py`), Amdahl's law (`amdahl.py`), the page of a paper (`page.py`)."""

from __future__ import annotations
