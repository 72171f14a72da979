"""A vocabulary without a corpus: letters, pairs of letters and syllables, inside a word and at its beginning ("▁").

A merging tokeniser (SentencePiece's BPE, llama.cpp's SPM) reaches each piece through shorter ones. Words of German and English
have about three tokens with the first 4,000 pieces, and two with all.
"""

from __future__ import annotations

from itertools import product

VOWELS, LETTERS = "aeiou", "abcdefghijklmnopqrstuvwxyz"
CONTROL = ("<unk>", "<s>", "</s>")


def make_pieces() -> list[str]:
    """Return all pieces, in the order in which a tokeniser merges them."""
    characters = ["▁", *map(chr, range(33, 127)), *"äöüßÄÖÜéèàçñ"]
    pairs = ["".join(pair) for pair in product(LETTERS, LETTERS)]
    starts = ["▁" + letter for letter in LETTERS + LETTERS.upper()] + ["▁" + pair for pair in pairs]
    syllables = ["".join(parts) for parts in product(LETTERS, VOWELS, LETTERS)]
    triples = [text for parts in product(LETTERS, repeat=3) if set(text := "".join(parts)) & set(VOWELS)]
    capitals = ["▁" + text.capitalize() for text in (*pairs, *syllables)]
    pieces = [*characters, *pairs, *starts, *syllables, *triples, *("▁" + text for text in triples), *capitals]
    return list(dict.fromkeys(pieces))
