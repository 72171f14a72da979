"""Fertility: convert lengths from the unit of a workload to the unit of a device profile by a stated factor.

A plane in seconds per subword says nothing of words. Where the text is at hand it is best counted in the profile's unit;
where only counts are, the mean number of subwords in a word has to be stated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from simnmt.base.configuration import Configuration, EndOfSentence
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import UNIT_PREFIX, UNITS, Side

Factor = Annotated[float, Field(gt=0.0, le=100.0)]


Factors = Annotated[
    Annotated[dict[str, Factor], Field(min_length=1), Tag("by_unit")] | Annotated[Factor, Tag("one_factor")],
    Discriminator(lambda value: "by_unit" if isinstance(value, dict) else "one_factor"),
]
"""One number for the one unit of the device profiles, or a number for each of their units by its name."""


class Fertility(Configuration):
    """How many tokens of the device profiles' unit a token of the workload's unit makes, on average.

    Profiles that count in several units need a number for each of these: `src: {subword: 1.3, char: 4.8}`.
    """

    src: Factors | None = None
    """Of the source side; left out where both count it alike."""
    tgt: Factors | None = None
    """Of the target side; left out where both count it alike."""

    def factor(self, side: Side, unit: str) -> float | None:
        """Return how many tokens of a unit a token of the workload makes; None where that is not stated."""
        stated = self.src if side == "src" else self.tgt
        return stated.get(unit) if isinstance(stated, dict) else stated


def check_fertility(fertility: Fertility | None, side: Side, own_unit: str, profile_units: Iterable[str]) -> None:
    """Refuse a fertility that does not say which of the profiles' units it is for.

    Args:
        fertility: what is stated.
        side: which side of the workload.
        own_unit: the unit that the workload is counted in.
        profile_units: the units of the device profiles.

    Raises `CorpusError` for one number where profiles count in several units other than the workload's, and for a unit in
    which no profile counts.
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
    """Return how a side of a workload comes to be counted in a profile's unit, or how the profile gets a countable one."""
    if wanted in UNITS:
        return f"count the text by {wanted}"
    if wanted.startswith(UNIT_PREFIX):
        return f"name the folder of the model, {side}_unit: {{sentencepiece: FOLDER}}, beside the text"
    return "calibrate a model's folder, whose tokeniser names the unit"


def convert_units(
    table: LengthTable,
    fertility: Fertility | None,
    src_unit: str,
    tgt_unit: str,
    end_of_sentence: EndOfSentence | None = None,
) -> LengthTable:
    """The table with its lengths in these units, a device profile's; the same table where it is so already.

    The one place where lengths of text become lengths that costs are told for: `end_of_sentence` is what the profile's lengths
    count of the end-of-sentence token, None: as the table.

    Raises `CorpusError` where a side's units differ and no fertility is stated for it, and where one is stated though
    they do not differ.
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
