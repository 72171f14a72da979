"""Fertility: conversion of lengths from the unit of a workload to the unit of a device profile by a stated factor.

A plane in seconds per subword cannot be evaluated for words. A text is best counted in the profile's unit; for counts without a
text, the mean number of subwords per word has to be stated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from simnmt.base.configuration import Configuration, EndOfSentence
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import KINDS, UNITS, Side

Factor = Annotated[float, Field(gt=0.0, le=100.0)]


Factors = Annotated[
    Annotated[dict[str, Factor], Field(min_length=1), Tag("by_unit")] | Annotated[Factor, Tag("one_factor")],
    Discriminator(lambda value: "by_unit" if isinstance(value, dict) else "one_factor"),
]
"""One number for the only unit of the device profiles, or a number for each of their units by name."""


class Fertility(Configuration):
    """Mean tokens of the device profiles' unit per token of the workload's unit.

    Profiles with several units need a number for each: `src: {subword: 1.3, char: 4.8}`.
    """

    src: Factors | None = None
    """Fertility of the source side; left out if both units are the same."""
    tgt: Factors | None = None
    """Fertility of the target side; left out if both units are the same."""

    def factor(self, side: Side, unit: str) -> float | None:
        """Return the mean tokens of a unit per token of the workload; None if not stated."""
        stated = self.src if side == "src" else self.tgt
        return stated.get(unit) if isinstance(stated, dict) else stated


def check_fertility(fertility: Fertility | None, side: Side, own_unit: str, profile_units: Iterable[str]) -> None:
    """Raise `CorpusError` for a fertility that does not fit the units of the profiles.

    These are one number for several units other than the workload's, and a number for a unit in which no profile counts.

    Args:
        fertility: the stated fertility.
        side: a side of the workload.
        own_unit: the unit of the workload.
        profile_units: the units of the device profiles.
    """
    stated = None if fertility is None else fertility.src if side == "src" else fertility.tgt
    units = list(dict.fromkeys(profile_units))
    if isinstance(stated, dict):
        for unit in stated:
            if unit not in units:
                what = f"fertility.{side} is stated for {unit!r}, in which no profile counts"
                raise CorpusError(what, remedy=did_you_mean(unit, units))
        return
    foreign = [unit for unit in units if unit != own_unit]
    if stated is not None and len(foreign) > 1:
        what = f"fertility.{side} is one number, but the profiles count by {format_list(foreign)}, the workload by {own_unit}"
        raise CorpusError(what, remedy=f"state one for each: {side}: {{{', '.join(f'{unit}: NUMBER' for unit in foreign)}}}")


def counting_remedy(side: str, wanted: str) -> str:
    """Return the remedy for a side of a workload that is not counted in a profile's unit `wanted`."""
    if wanted in UNITS:
        return f"count the text by {wanted}"
    if (kind := wanted.partition(" ")[0]) in KINDS:
        return f"name the folder of the model, {side}_unit: {{{kind}: FOLDER}}, beside the text"
    return "calibrate a model's folder, whose tokeniser names the unit"


def convert_units(
    table: LengthTable,
    fertility: Fertility | None,
    src_unit: str,
    tgt_unit: str,
    end_of_sentence: EndOfSentence | None = None,
) -> LengthTable:
    """Return the table with lengths in these units of a device profile; the table itself if it has them already.

    Only here, lengths of text become lengths for cost models. `end_of_sentence`: the lengths of the profile that count the
    end-of-sentence token; None: those of the table.

    Raises `CorpusError` for a side with different units and no fertility, and for a fertility though the units are the same.
    """
    factors: list[float] = []
    sides: tuple[tuple[Side, str, str], ...] = (("src", table.src_unit, src_unit), ("tgt", table.tgt_unit, tgt_unit))
    for side, unit, wanted in sides:
        stated = (fertility or Fertility()).factor(side, wanted)
        if unit != wanted and stated is None:
            raise CorpusError(
                f"{side} lengths of {table.name} are counted by {unit}, the profile's by {wanted}",
                remedy=f"{counting_remedy(side, wanted)}, take a profile measured by {unit}, or state fertility.{side}: "
                f"{wanted} per {unit}",
            )
        if unit == wanted and stated not in (None, 1.0):
            what = f"fertility.{side} is {stated:g}, but table {table.name} and the profile both count it by {unit}"
            raise CorpusError(what, remedy="leave it out")
        factors.append(1.0 if stated is None else stated)
    if (table.src_unit, table.tgt_unit) != (src_unit, tgt_unit):
        src, tgt = factors
        table = table.with_fertility(src, tgt, src_unit, tgt_unit)
    return table.counting(end_of_sentence or table.end_of_sentence)
