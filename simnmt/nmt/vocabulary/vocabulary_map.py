"""Candidate lists as CTranslate2's vocabulary map: the same restriction in a production decoder (SHARP-02).

A line is `source ngram<TAB>target tokens`, tokens parted by spaces; the line with an empty source holds those of every
sentence. CTranslate2 adds unknown, begin and end mark by itself, and takes the union over a batch's sentences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from simnmt.files import written_whole
from simnmt.nmt.errors import NmtError
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists

_PARTS = re.compile("[ \t\n\r]")


def write_vocabulary_map(path: Path, lists: CandidateLists, source: Sequence[str], target: Sequence[str]) -> None:
    """Write the lists under the tokens' texts, one a source token, for `--vocab_mapping` of CTranslate2's converters.

    `source` and `target` are the texts of all tokens. Raises `NmtError` where they are not as many as the lists know, where one
    holds white space, which parts the fields of the file, and where the file cannot be written.
    """
    for side, texts, vocab in (("source", source, lists.src_vocab), ("target", target, lists.vocab)):
        if len(texts) != vocab:
            raise NmtError(f"{len(texts):,} {side} tokens, but lists for {vocab:,}", remedy="take the model's own vocabulary")
        for token, text in enumerate(texts):
            if not text or _PARTS.search(text):
                what = (
                    f"{side} token {token}, {text!r}, is empty or holds white space, which parts the fields of a vocabulary map"
                )
                raise NmtError(what, remedy="name it otherwise when converting")
    lines = ["\t" + " ".join(target[token] for token in lists.always.tolist())]
    for token, text in enumerate(source):
        if len(own := lists.list_of(token)):
            lines.append(text + "\t" + " ".join(target[each] for each in own.tolist()))
    try:
        with written_whole(path) as partial:
            partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise NmtError(f"cannot be written: {error.strerror or error}", path=path, remedy="choose another place") from None
