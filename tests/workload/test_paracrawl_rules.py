"""ParaCrawl's hard rules, each on lines made up for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload.filters import filter_named
from simnmt.workload.paracrawl_rules import RULES

GOOD = [
    ("das alte Haus steht am Fluss", "the old house stands by the river"),
    ("Er wohnt seit 1987 in Graz.", "He has lived in Graz since 1987."),
    ("你好，世界，今天天气很好。", "Hello world, the weather is fine today."),
    ("Ja, das stimmt!", "Yes, that is right!"),
    ("Saint-Étienne (Loire) l’a fait, dit-il : « oui ».", "Saint-Étienne (Loire) did it, he said: “yes”."),
    ("Der Preis beträgt 12 bis 14 Euro", "The price is 12 to 14 euros"),
]

BAD = {
    "empty": [("", "the house is old"), ("das Haus ist alt", " \t ")],
    "not_too_long": [("das ist gut " * 90, "that is good " * 40), ("ein Satz ist das", "a " * 520)],
    "not_too_short": [("ja", "yes"), ("guten Morgen", "good morning")],
    "length_ratio": [
        ("das Haus ist alt", "the house is old and so are all of the others here"),
        ("eins zwei drei vier fünf sechs", "one two"),
    ],
    "no_identical": [
        ("The house is old", "the HOUSE is old"),
        ("we met in 1987 there", "we met in 2001 there"),
        ("well, that is so.", "well - that is so!"),
        ("這 是 1 個 測 試", "這 是 2 個 測 試"),
    ],
    "no_literals": [
        ("Re: das alte Haus", "the old house there"),
        ("nimm %s als Wert hier", "take %s as the value"),
        ("das +++ Haus ist", "the old house is"),
    ],
    "no_only_symbols": [("- - - 12 % = 8 § / ab", "- - - 12 % = 8 § / cd"), ("das Haus ist alt", "-- 1 -- 2 -- 3 4")],
    "no_only_numbers": [("ab 123456 789012 345", "ba 543 210987 654321"), ("Tel 0316 123456 789", "call 0043 123456 789")],
    "no_urls": [
        ("siehe http://a.org im Netz", "see it on the web there"),
        ("schau auf www.a.org nach", "look it up on this site"),
    ],
    "no_breadcrumbs": [
        ("Start > Haus > Alt > Neu", "home and old and new"),
        ("das | ist | ein | Menü", "this is a menu there"),
    ],
    "no_glued_words": [
        ("das sindVieleWörterOhneBlank hier", "these are many words here"),
        ("ein Haus am Fluss", "a houseByTheRiverSide"),
    ],
    "no_unicode_noise": [
        ("das \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd Haus ist", "the old house is there"),
        ("┌──────┐ das alte Haus", "there the old house is"),
    ],
    "no_space_noise": [("das A l t e H a u s ist", "the old house is there")],
    "no_paren": [("((((((das Haus)))))) ist alt", "the old house is there")],
    "no_escaped_unicode": [(r"das H\u00e4uschen ist alt", "the little house is old")],
    "no_bad_encoding": [("das HÃ¤uschen ist alt", "the little house is old"), ("das ist gut so", "itâ€™s good like that")],
    "no_titles": [("Das Alte Haus Am Fluss", "the old house by the river"), ("das alte Haus am Fluss", "THE OLD HOUSE BY IT")],
}


@pytest.mark.parametrize("pair", GOOD, ids=lambda pair: pair[0])
def test_an_ordinary_pair_passes_every_rule_in_either_order(pair: tuple[str, str]) -> None:
    assert [name for name, drops in RULES.items() if drops(*pair) or drops(*pair[::-1])] == []


@pytest.mark.parametrize(("rule", "pair"), [(rule, pair) for rule, pairs in BAD.items() for pair in pairs])
def test_each_rule_drops_what_it_is_for_on_either_side(rule: str, pair: tuple[str, str]) -> None:
    assert RULES[rule](*pair) and RULES[rule](*pair[::-1])


@pytest.mark.parametrize(("rule", "pair"), [(rule, pair) for rule, pairs in BAD.items() for pair in pairs])
def test_a_pair_is_booked_under_the_rule_that_it_breaks(rule: str, pair: tuple[str, str]) -> None:
    """None of the made-up pairs breaks a rule that is asked before, so the counts of rejects mean what they say."""
    rejects: dict[str, int] = {}
    assert list(filter_named("paracrawl").passed([pair], rejects)) == []
    assert rejects == {rule: 1}


def test_every_rule_has_its_example() -> None:
    assert set(BAD) == set(RULES)


@pytest.mark.parametrize(
    ("rule", "pair"),
    [
        ("not_too_long", ("a" * 1024, "b" * 1024)),
        ("not_too_short", ("ja", "yes it is")),  # one short side may be
        ("length_ratio", ("aaaa", "bbbbbbbb")),  # exactly twice
        ("length_ratio", ("ä" * 10, "b" * 40)),  # bytes, not characters
        ("no_glued_words", ("ein McDonald und der eBay iPod dazu", "x")),  # no word more than twice
        ("no_breadcrumbs", ("das | ist | es", "x")),
        ("no_space_noise", ("A B C D E F", "x")),
        ("no_space_noise", ("1 2 3 4 5 6 7 8 9", "x")),
        ("no_titles", ("2 3 4", "5 6 7")),  # no letters, no titles
        ("no_titles", ("Python 文档", "the docs")),  # letters without case are no capitals
        ("no_bad_encoding", ("São Paulo à Âge", "ça va")),
        ("no_only_symbols", ("é" * 2 + "-" * 18, "x")),  # exactly a tenth
    ],
)
def test_what_lies_just_within_a_rule_passes(rule: str, pair: tuple[str, str]) -> None:
    assert not RULES[rule](*pair)


lines = st.text(st.characters() | st.sampled_from("aZäÄ 19.,()|\\u{}%ÃÂ你\ufffd"), max_size=60)


@given(lines, lines)
def test_every_rule_has_an_answer_for_every_line_and_the_same_for_both_orders(src: str, tgt: str) -> None:
    for drops in RULES.values():
        assert drops(src, tgt) == drops(tgt, src)


@given(lines)
def test_a_line_is_identical_to_itself_whatever_is_done_to_its_case(line: str) -> None:
    """The cheap look at the letters lets no such pair through."""
    assert RULES["no_identical"](line, line.upper().lower()) or line.casefold() != line.upper().lower().casefold()
    assert RULES["no_identical"](line, line)


@given(lines)
def test_the_cheap_look_at_letters_agrees_with_counting_them(line: str) -> None:
    assert RULES["no_only_symbols"](line, "letters") == (10 * sum(map(str.isalpha, line)) < len(line))
