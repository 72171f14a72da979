"""The hard rules with which ParaCrawl of 2020 threw out obviously noisy pairs, as far as they are public.

Written from descriptions, not from the program (which is GPL): the list of rules in the README of
github.com/bitextor/bicleaner-hardrules gives each rule a name and a sentence, its change log says which of them
Bicleaner 0.12 to 0.14 (2019 to 2020) had and how they changed; Ramírez-Sánchez et al., EAMT 2020, describes their use.
Where a description says "too many" or "too high", the number below is ours.

Not covered: what needs a model or a dictionary (`no_wrong_language`, `no_porn`, the fluency filter `lm_filter`), and
what came after 2020 (repeated words, numbers or scripts that disagree). The rules look at characters, words and bytes
of the lines, whatever the unit of the lengths. They are asked of every line, so each first takes a cheap look that lets most
lines pass: 10 us for a pair of short lines, 25 us for one of news.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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


def empty(src: str, tgt: str) -> bool:
    """A side is blank."""
    return not src.strip() or not tgt.strip()


def not_too_long(src: str, tgt: str) -> bool:
    """A side has more than 1024 characters."""
    return len(src) > MAX_CHARACTERS or len(tgt) > MAX_CHARACTERS


def not_too_short(src: str, tgt: str) -> bool:
    """Both sides have fewer than three words (one side alone may since 0.12, three words since 0.13)."""
    return len(src.split(maxsplit=MIN_WORDS - 1)) < MIN_WORDS and len(tgt.split(maxsplit=MIN_WORDS - 1)) < MIN_WORDS


def length_ratio(src: str, tgt: str) -> bool:
    """One side has more than `MAX_BYTE_RATIO` (ours) times the bytes of the other, in UTF-8."""
    src_bytes, tgt_bytes = len(_encoded(src)), len(_encoded(tgt))
    return src_bytes > MAX_BYTE_RATIO * tgt_bytes or tgt_bytes > MAX_BYTE_RATIO * src_bytes


def no_identical(src: str, tgt: str) -> bool:
    """The sides are the same but for case, or besides but for digits, or besides but for punctuation."""
    src, tgt = src.casefold(), tgt.casefold()
    # Whatever is left out below, letters stay.
    same_letters = _encoded(src).translate(None, _ASCII_NO_LETTERS) == _encoded(tgt).translate(None, _ASCII_NO_LETTERS)
    return same_letters and any(leave_out.sub("", src) == leave_out.sub("", tgt) for leave_out in (_BLANKS, _DIGITS, _SIGNS))


def no_only_symbols(src: str, tgt: str) -> bool:
    """More than 90 % of a side's characters are no letters."""
    return _few_letters(src) or _few_letters(tgt)


def _few_letters(text: str) -> bool:
    enough = len(text) / CHARACTERS_PER_LETTER
    ascii_letters = len(_encoded(text).translate(None, _ASCII_NO_LETTERS))
    return ascii_letters < enough and sum(map(str.isalpha, text)) < enough


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def no_only_numbers(src: str, tgt: str) -> bool:
    """More than half (ours) of a side's characters are digits 0 to 9."""
    return _many_digits(src) or _many_digits(tgt)


def _many_digits(text: str) -> bool:
    octets = _encoded(text)
    return len(octets) - len(octets.translate(None, _ASCII_DIGITS)) > MAX_DIGIT_SHARE * len(text)


def no_urls(src: str, tgt: str) -> bool:
    """A side has a URL."""
    return _has_url(src) or _has_url(tgt)


def _has_url(text: str) -> bool:
    return ("://" in text or "www." in text or "WWW." in text) and _URL.search(text) is not None


def no_breadcrumbs(src: str, tgt: str) -> bool:
    """A side has more than two of the signs (ours) that part the steps of a path through a site."""
    return len(_BREADCRUMB.findall(src)) > MAX_BREADCRUMBS or len(_BREADCRUMB.findall(tgt)) > MAX_BREADCRUMBS


def no_glued_words(src: str, tgt: str) -> bool:
    """A word goes from small to capital letter more than twice (ours), likeThisOneHere."""
    return _glued(src) or _glued(tgt)


def _glued(text: str) -> bool:
    glued = len(_GLUE.findall(text)) > MAX_GLUED
    return glued and any(len(_GLUE.findall(word)) > MAX_GLUED for word in text.split())


def no_unicode_noise(src: str, tgt: str) -> bool:
    """A side has more than five (ours) characters that write nothing: controls, private use, frames, ornaments, U+FFFD."""
    return _noisy(src) or _noisy(tgt)


def _noisy(text: str) -> bool:
    return not (text.isascii() and text.isprintable()) and len(_UNICODE_NOISE.findall(text)) > MAX_UNICODE_NOISE


def no_space_noise(src: str, tgt: str) -> bool:
    """A side has more than six (ours) s i n g l e letters in a row; so has Chinese text with a blank after each character."""
    return any(_SOMEWHAT_SPACED_OUT.search(side) and _SPACED_OUT.search(side) for side in (src, tgt))


def no_paren(src: str, tgt: str) -> bool:
    """A side has more than ten (ours) round, square, curly or angle brackets."""
    return len(_BRACKET.findall(src)) > MAX_BRACKETS or len(_BRACKET.findall(tgt)) > MAX_BRACKETS


def no_literals(src: str, tgt: str) -> bool:
    """A side has a piece of a program or of a mail header: Re: (since 0.12), {{ }} %s +++ *** ="."""
    return any(literal in src or literal in tgt for literal in _LITERALS)


def no_escaped_unicode(src: str, tgt: str) -> bool:
    r"""A side has a character that was never unescaped, such as \u00e9."""
    return _ESCAPED.search(src) is not None or _ESCAPED.search(tgt) is not None


def no_bad_encoding(src: str, tgt: str) -> bool:
    """A side was once read in the wrong encoding, so that é stands as Ã©."""
    return any(not side.isascii() and _MOJIBAKE.search(side) for side in (src, tgt))


def no_titles(src: str, tgt: str) -> bool:
    """Every word of a side that begins with a letter begins with a capital."""
    return _titled(src) or _titled(tgt)


def _titled(text: str) -> bool:
    capitals = False
    for word in text.split():
        if word[0].isupper():
            capitals = True
        elif word[0].isalpha():
            return False
    return capitals


RULES: dict[str, TextRule] = {
    rule.__name__: rule
    for rule in (
        empty,
        not_too_long,
        not_too_short,
        length_ratio,
        no_identical,
        no_literals,
        no_only_symbols,
        no_only_numbers,
        no_urls,
        no_breadcrumbs,
        no_glued_words,
        no_unicode_noise,
        no_space_noise,
        no_paren,
        no_escaped_unicode,
        no_bad_encoding,
        no_titles,
    )
}
"""By their public names (`empty` is theirs `no_empty`), in the order in which they are asked."""
