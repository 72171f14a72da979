"""The base of every configuration model: unknown keys refused, no silent conversions, frozen once read.

Each room owns the models of what it builds; `simnmt.scenario` composes them and maps their complaints back to lines.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Configuration(BaseModel):
    """What a part of a scenario file may say. A unit stands in the key's name; numbers carry none."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
