"""From the unit that a workload is counted in to the unit of a device profile, by a stated fertility.

A plane in seconds per subword says nothing of words. Where the text is at hand it is best counted in the profile's unit;
where only counts are, the mean number of subwords in a word has to be stated.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simnmt.configuration import Configuration, EndOfSentence
from simnmt.workload.counting import UNIT_PREFIX, UNITS
from simnmt.workload.errors import CorpusError
from simnmt.workload.length_table import LengthTable

Factor = Annotated[float, Field(gt=0.0, le=100.0)]


class Fertility(Configuration):
    """How many tokens of the device profiles' unit a token of the workload's unit makes, on average."""

    src: Factor | None = None
    """Of the source side; left out where both count it alike."""
    tgt: Factor | None = None
    """Of the target side; left out where both count it alike."""


def counting_remedy(side: str, wanted: str) -> str:
    """Return how a side of a workload comes to be counted in a profile's unit, or how the profile gets a countable one."""
    if wanted in UNITS:
        return f"count the text by {wanted}"
    if wanted.startswith(UNIT_PREFIX):
        return f"name the folder of the model, {side}_unit: {{sentencepiece: FOLDER}}, beside the text"
    return "calibrate a model's folder, whose tokeniser names the unit"


def in_units(
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
    for side, own, wanted in (("src", table.src_unit, src_unit), ("tgt", table.tgt_unit, tgt_unit)):
        stated = getattr(fertility or Fertility(), side)
        if own != wanted and stated is None:
            raise CorpusError(
                f"{side} lengths of {table.name} are counted by {own}, the profile's by {wanted}",
                remedy=f"{counting_remedy(side, wanted)}, take a profile measured by {own}, or state fertility.{side}: "
                f"{wanted} per {own}",
            )
        if own == wanted and stated not in (None, 1.0):
            what = f"fertility.{side} is {stated:g}, but table {table.name} and the profile both count it by {own}"
            raise CorpusError(what, remedy="leave it out")
        factors.append(1.0 if stated is None else stated)
    if (table.src_unit, table.tgt_unit) != (src_unit, tgt_unit):
        src, tgt = factors
        table = table.with_fertility(src, tgt, src_unit, tgt_unit)
    return table.counting(end_of_sentence or table.end_of_sentence)
