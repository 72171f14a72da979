"""Real models in batches that a batcher forms: the same steps as foretold, the same sentences whoever shares a batch."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import pytest
import torch

from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.nmt.agreement import Agreement, agreement, decode_alone
from simnmt.nmt.decoder import decode
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.step_model import has_half_weights
from tests.campaigns.harness import deep
from tests.nmt.tiny import Table, lively, sources

SIZE, MOST = 4, 20
BATCHERS = {
    "mini": mini(SIZE),
    "maxi": maxi(SIZE, 2 * SIZE),
    "half-empty": top_up(SIZE, half_empty(SIZE)),
    "immediate": top_up(SIZE, immediate(SIZE)),
    "both": top_up(SIZE, half_empty(SIZE), 2 * SIZE),
    "padded": Batching(SIZE, half_empty(SIZE), padded_tokens=30, encoded_together=2),
}


@cache
def text(name: str) -> list[list[int]]:
    lengths = torch.randint(3, 12, (20,), generator=torch.Generator().manual_seed(5)).tolist()
    return sources(lively(name).architecture, lengths)[0]


@pytest.mark.parametrize("beam", [1, deep(5)])
@pytest.mark.parametrize("name", ["gru", "marian"])
@pytest.mark.parametrize("kind", ["float16_weights", "float16"])
def test_in_float16_at_least_999_of_1000_tokens_are_equal(kind: str, name: str, beam: int) -> None:
    """FNI-11, on the CPU: whoever shares a batch, in weights of float16 and in float16 throughout."""
    model = deepcopy(lively(name))
    if kind == "float16":
        model.to(torch.float16)
    elif has_half_weights():
        model.halve()
    else:
        pytest.skip("half-precision weights need FBGEMM, which torch has on x86 alone")
    runs = [
        decode(model, text(name), batching, search=Search(beam), max_len=MOST) for batching in (mini(1), BATCHERS["half-empty"])
    ]
    # Processors without float16 arithmetic round otherwise: there a tie within float16's own rounding may change places, and in
    # so short a text one such sentence is more than a thousandth of the tokens.
    rounding = torch.finfo(torch.float16).eps
    hypotheses = [run.hypotheses for run in runs]
    compared = agreement(model, text(name), *hypotheses, beam=beam, max_len=MOST, tie=rounding)
    assert compared.equal_tokens >= 0.999 or not compared.disagreements


@pytest.mark.parametrize(
    ("batching", "steps"),
    [
        (mini(4), [4, 4, 3, 2, 2, 1, 1, 1, 1, 4, 3, 3, 3, 1, 1]),
        (top_up(4, 3), [4, 4, 4, 4, 4, 4, 3, 2, 2, 1, 1, 1]),
        (top_up(4, 2), [4, 4, 3, 4, 4, 3, 3, 3, 2, 1, 1, 1, 1]),
    ],
    ids=["mini", "immediate", "half-empty"],
)
def test_a_real_decoder_follows_the_worked_examples_of_the_paper(batching: Batching, steps: list[int]) -> None:
    """FNI-08 and FNI-10."""
    run = decode(lively("marian"), text("marian")[:8], batching, forced_lens=[2, 5, 3, 9, 4, 4, 1, 6])
    assert run.active.tolist() == steps


def test_a_near_tie_is_distinguished_from_a_fault() -> None:
    """The second word leads the third by as much as `lead`; the third step has no choice."""
    for lead, ties in ((1e-5, 1), (0.3, 0)):
        logits = torch.full((6, 6), -50.0)
        logits[2, 3], logits[2, 4], logits[3, 1], logits[4, 1] = lead, 0.0, 9.0, 9.0
        model = Table(logits.log_softmax(dim=1))
        one, other = Hypothesis((3,), None), Hypothesis((4,), None)
        compared = agreement(model, [[5], [5]], [one, one], [one, other])
        assert (compared.equal, len(compared.near_ties), len(compared.disagreements)) == (1, ties, 1 - ties)
    assert compared == Agreement(1, (), (1,), equal_tokens=0.5)


@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.parametrize("tie_first", [True, False])
def test_a_tie_excuses_only_the_difference_that_it_caused(beam: int, tie_first: bool) -> None:
    """Words 3 and 4 come first, then 5 and 6; in the one place they nearly tie, in the other nothing is close."""
    close, apart = torch.tensor([1e-6, 0.0]), torch.tensor([3.0, 0.0])
    logits = torch.full((8, 8), -50.0)
    logits[2, 3:5] = close if tie_first else apart
    logits[3, 5:7] = logits[4, 5:7] = apart if tie_first else close
    logits[5, 7] = logits[6, 7] = logits[7, 1] = 9.0
    model = Table(logits.log_softmax(dim=1))
    right, first, second = (Hypothesis(tokens, None) for tokens in ((3, 5, 7), (4, 5, 7), (3, 6, 7)))
    assert decode_alone(model, [5], beam).tokens == right.tokens
    compared = agreement(model, [[5], [5]], [right, right], [first, second], beam=beam)
    assert (compared.near_ties, compared.disagreements) == (((0,), (1,)) if tie_first else ((1,), (0,)))
    assert compared.equal_tokens == pytest.approx(4 / 6)
