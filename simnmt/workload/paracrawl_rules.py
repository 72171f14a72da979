"""The hard rules with which ParaCrawl of 2020 dropped obviously noisy pairs, as far as they are public.

Written from descriptions, not from the program (which is GPL): the list of rules in the README of
github.com/bitextor/bicleaner-hardrules gives each rule a name and a sentence, its change log lists the rules
and changes of Bicleaner 0.12 to 0.14 (2019 to 2020); Ramírez-Sánchez et al., EAMT 2020, describes their use.
A number is ours if the description has only "too many" or "too high".

Not covered: rules that need a model or a dictionary (`no_wrong_language`, `no_porn`, the fluency filter `lm_filter`), and rules
since 2021 (repeated words, numbers or scripts that disagree). The rules use characters, words and bytes of the lines, whatever
the unit of the lengths. Since they are applied to every line, each begins with a cheap test that most lines pass: 10 us for a
pair of short lines, 25 us for one of news.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps

TextRule = Callable[[str, str], bool]
"""(source line, target line) -> True where the pair is to be dropped."""

MAX_CHARACTERS = 1024
MIN_WORDS = 3
MAX_BYTE_RATIO = 2.0
CHARACTERS_PER_LETTER = 10
MAX_DIGIT_SHARE = 0.5
MAX_BREADCRUMBS = 2
MAX_GLUED = 2
MAX_UNICODE_NOISE = 5
MAX_SINGLE_LETTERS = 6
MAX_BRACKETS = 10

_ASCII_DIGITS = b"0123456789"
_ASCII_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha()) + bytes(range(128, 256))
_DIGITS = re.compile(r"\d+")
_SIGNS = re.compile(r"[\W_]+")
_BLANKS = re.compile(r"\s+")
_URL = re.compile(r"\w://\w|\bwww\.\w", re.IGNORECASE)
_BREADCRUMB = re.compile("[|>»›·]")
_GLUE = re.compile("[A-ZÀ-ÖØ-Þ](?<=[a-zß-öø-ÿ][A-ZÀ-ÖØ-Þ])")
_UNICODE_NOISE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2500-\u25ff\u2700-\u27bf\ue000-\uf8ff\ufffd]")
_SPACED_OUT = re.compile(rf"(?:^| )(?:[^\W\d_] ){{{MAX_SINGLE_LETTERS}}}[^\W\d_](?: |$)")
_SOMEWHAT_SPACED_OUT = re.compile(r" [^\W\d_] [^\W\d_] [^\W\d_]")
_BRACKET = re.compile(r"[()\[\]{}<>]")
_LITERALS = ("Re:", "{{", "}}", "%s", "+++", "***", '="')
_ESCAPED = re.compile(r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}")
_MOJIBAKE = re.compile("[ÂÃ][\x80-\xbf]|Ã[ƒ‚„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ¡-¿]|â€[\x80-\x9f™œ“”˜¦¢]|ï»¿")


def empty(side: str) -> bool:
    """Return whether a side is blank."""
    return not side.strip()


def not_too_long(side: str) -> bool:
    """Return whether a side has more than 1024 characters."""
    return len(side) > MAX_CHARACTERS


def not_too_short(src: str, tgt: str) -> bool:
    """Return whether both sides have fewer than three words (both since 0.12, three since 0.13)."""
    return len(src.split(maxsplit=MIN_WORDS - 1)) < MIN_WORDS and len(tgt.split(maxsplit=MIN_WORDS - 1)) < MIN_WORDS


def length_ratio(src: str, tgt: str) -> bool:
    """Return whether one side has more than `MAX_BYTE_RATIO` (ours) times the bytes of the other, in UTF-8."""
    src_bytes, tgt_bytes = len(_encoded(src)), len(_encoded(tgt))
    return src_bytes > MAX_BYTE_RATIO * tgt_bytes or tgt_bytes > MAX_BYTE_RATIO * src_bytes


def no_identical(src: str, tgt: str) -> bool:
    """Return whether the sides are the same apart from case and blanks, or case and digits, or case and punctuation."""
    src, tgt = src.casefold(), tgt.casefold()
    # Letters are part of every comparison below.
    same_letters = _encoded(src).translate(None, _ASCII_NO_LETTERS) == _encoded(tgt).translate(None, _ASCII_NO_LETTERS)
    return same_letters and any(ignored.sub("", src) == ignored.sub("", tgt) for ignored in (_BLANKS, _DIGITS, _SIGNS))


def no_only_symbols(side: str) -> bool:
    """Return whether more than 90 % of a side's characters are no letters."""
    enough = len(side) / CHARACTERS_PER_LETTER
    ascii_letters = len(_encoded(side).translate(None, _ASCII_NO_LETTERS))
    return ascii_letters < enough and sum(map(str.isalpha, side)) < enough


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def no_only_numbers(side: str) -> bool:
    """Return whether more than half (ours) of a side's characters are digits 0 to 9."""
    octets = _encoded(side)
    return len(octets) - len(octets.translate(None, _ASCII_DIGITS)) > MAX_DIGIT_SHARE * len(side)


def no_urls(side: str) -> bool:
    """Return whether a side has a URL."""
    return ("://" in side or "www." in side or "WWW." in side) and _URL.search(side) is not None


def no_breadcrumbs(side: str) -> bool:
    """Return whether a side has more than two (ours) of the signs that separate the steps of a path through a site."""
    return len(_BREADCRUMB.findall(side)) > MAX_BREADCRUMBS


def no_glued_words(side: str) -> bool:
    """Return whether a word changes from small to capital letter more than twice (ours), likeThisOneHere."""
    glued = len(_GLUE.findall(side)) > MAX_GLUED
    return glued and any(len(_GLUE.findall(word)) > MAX_GLUED for word in side.split())


def no_unicode_noise(side: str) -> bool:
    """Return whether a side has more than five (ours) controls, private-use characters, frames, ornaments or U+FFFD."""
    return not (side.isascii() and side.isprintable()) and len(_UNICODE_NOISE.findall(side)) > MAX_UNICODE_NOISE


def no_space_noise(side: str) -> bool:
    """Return whether a side has more than six (ours) s i n g l e letters in a row.

    So has Chinese text with a blank after each character.
    """
    return _SOMEWHAT_SPACED_OUT.search(side) is not None and _SPACED_OUT.search(side) is not None


def no_paren(side: str) -> bool:
    """Return whether a side has more than ten (ours) round, square, curly or angle brackets."""
    return len(_BRACKET.findall(side)) > MAX_BRACKETS


def no_literals(src: str, tgt: str) -> bool:
    """Return whether a side has a piece of a program or of a mail header: Re: (since 0.12), {{ }} %s +++ *** ="."""
    return any(literal in src or literal in tgt for literal in _LITERALS)


def no_escaped_unicode(side: str) -> bool:
    r"""Return whether a side has an escaped character, such as \u00e9."""
    return _ESCAPED.search(side) is not None


def no_bad_encoding(side: str) -> bool:
    """Return whether a side was once read in the wrong encoding, as é read as Ã©."""
    return not side.isascii() and _MOJIBAKE.search(side) is not None


def no_titles(side: str) -> bool:
    """Return whether every word of a side that begins with a letter begins with a capital."""
    capitals = False
    for word in side.split():
        if word[0].isupper():
            capitals = True
        elif word[0].isalpha():
            return False
    return capitals


def _either_side(drops: Callable[[str], bool]) -> TextRule:
    @wraps(drops)
    def rule(src: str, tgt: str) -> bool:
        return drops(src) or drops(tgt)

    return rule


RULES: dict[str, TextRule] = {
    rule.__name__: rule
    for rule in (
        _either_side(empty),
        _either_side(not_too_long),
        not_too_short,
        length_ratio,
        no_identical,
        no_literals,
        _either_side(no_only_symbols),
        _either_side(no_only_numbers),
        _either_side(no_urls),
        _either_side(no_breadcrumbs),
        _either_side(no_glued_words),
        _either_side(no_unicode_noise),
        _either_side(no_space_noise),
        _either_side(no_paren),
        _either_side(no_escaped_unicode),
        _either_side(no_bad_encoding),
        _either_side(no_titles),
    )
}
"""Rules by their public names (ours `empty` is `no_empty`), in the order in which they are applied."""
