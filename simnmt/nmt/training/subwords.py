"""A subword vocabulary per side, or one for both, learnt by sentencepiece from the text that is trained on."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from simnmt.errors import describe_error
from simnmt.nmt.errors import need
from simnmt.nmt.training.errors import TrainingError

MOST_LINES = 1_000_000
"""Of a longer text the vocabulary is learnt from as many lines, spread evenly."""


def learn_vocabulary(texts: Sequence[str], size: int, *, side: str, pad: int, eos: int, unk: int, start: int) -> bytes:
    """A serialised unigram model of exactly `size` pieces; the same lines give the same bytes.

    `side`: how a complaint calls the text. The four ids are those of the marks; `start` may be `pad`.

    Raises `TrainingError` where the text is too small or too varied for the size, or sentencepiece is missing.
    """
    trainer = need("sentencepiece").SentencePieceTrainer
    step = -(-len(texts) // MOST_LINES)
    model = io.BytesIO()
    marks = {"pad_id": pad, "eos_id": eos, "unk_id": unk, "bos_id": -1 if start == pad else start}
    try:
        trainer.train(
            sentence_iterator=iter(texts[::step]),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=0.9998,
            num_threads=1,  # with more, the order of sums and so their last digits may differ
            max_sentence_length=1 << 16,
            minloglevel=2,
            **marks,
        )
    except (RuntimeError, OSError) as error:
        raise _complaint(error, size, side) from None
    return model.getvalue()


def fewest_pieces(error: Exception) -> int | None:
    """Return the least vocabulary that sentencepiece makes where it refused a smaller one; None for other errors.

    The figure stands at the end of a message that names a line of the library's source and may be long.
    """
    least = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    return None if least is None else int(least[1])


def _complaint(error: Exception, size: int, side: str) -> TrainingError:
    """sentencepiece's message, which names a line of its source, in plain words."""
    if most := re.search(r"value <= (\d+)", str(error)):
        what = f"a vocabulary of {size:,} is more than the {side} text has pieces for"
        return TrainingError(what, remedy=f"give --vocab {most[1]} or less, or more text")
    if (least := fewest_pieces(error)) is not None:
        what = f"a vocabulary of {size:,} is less than the {side} text has characters"
        return TrainingError(what, remedy=f"give --vocab {least} or more")
    what = f"sentencepiece makes no vocabulary of {size:,} from the {side} text: {describe_error(error)}"
    return TrainingError(what, remedy="look at the text, or give another --vocab")
