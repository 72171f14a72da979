"""Models small enough to test with: every kind of architecture, and one whose outputs are known exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simnmt.batching import mini
from simnmt.nmt.architecture import (
    Architecture,
    AttentionalArchitecture,
    RecurrentArchitecture,
    StackBlock,
    TransformerArchitecture,
)
from simnmt.nmt.decoder import decode
from simnmt.nmt.engine import load_engine
from simnmt.nmt.models import TranslationModel, build_model
from simnmt.nmt.output_layer import Limit, Output
from simnmt.nmt.search import Search, SlotSearch
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.step_model import pad

VOCAB = 50
BILSTM = RecurrentArchitecture(kind="bilstm", layers=2, hidden=16, embedding=12, src_vocab=VOCAB, tgt_vocab=VOCAB)
GRU = RecurrentArchitecture(kind="gru", layers=1, hidden=16, embedding=12, src_vocab=VOCAB, tgt_vocab=VOCAB)
MARIAN = TransformerArchitecture(
    kind="transformer",
    encoder_layers=2,
    decoder_layers=2,
    d_model=16,
    heads=2,
    ffn=32,
    vocab=VOCAB,
    max_positions=64,
    eos_token=0,
    unk_token=1,
    pad_token=VOCAB - 1,
    start_token=VOCAB - 1,
)
OWN_TOKENS = MARIAN.model_copy(update={"pad_token": 0, "start_token": 2, "eos_token": 3})
"""A Transformer as our own training makes it: a start token with a vector of its own."""
SHARP = AttentionalArchitecture(
    kind="attentional",
    hidden=16,
    embedding=12,
    attention_width=10,
    stack=(StackBlock(kind="fc_relu", width=20, layers=3), StackBlock(kind="gru", width=16)),
    source_layers=1,
    source_hidden=8,
    src_vocab=VOCAB,
    tgt_vocab=VOCAB,
)
ARCHITECTURES: dict[str, Architecture] = {
    "bilstm": BILSTM,
    "gru": GRU,
    "marian": MARIAN,
    "own tokens": OWN_TOKENS,
    "sharp": SHARP,
}


@cache
def lively(name: str) -> TranslationModel:
    """A model that half learnt to count on from a sentence's first token for its length: its outputs vary, and end."""
    architecture = ARCHITECTURES[name]
    model = build_model(architecture, seed=3)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(3)
    for _ in range(60):
        lengths = torch.randint(3, 9, (12,), generator=draw).tolist()
        alone, src, src_lengths = sources(architecture, lengths, seed=int(torch.randint(1000, (), generator=draw)))
        targets = [[*(4 + (one[0] + at) % 12 for at in range(len(one) - 1)), one[-1]] for one in alone]
        tgt_in, _ = pad([[architecture.start_token, *target[:-1]] for target in targets], architecture.pad_token)
        tgt_out, _ = pad(targets, -100)
        logits = model(src, src_lengths, tgt_in)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tgt_out.flatten()).backward()
        adam.step()
        adam.zero_grad()
    return model.eval()


def tiny_engine(folder: Path, name: str = "marian", **options: Any) -> Any:
    """An engine of an architecture's file, with random weights."""
    path = folder / f"{name}.json"
    path.write_text(ARCHITECTURES[name].model_dump_json(), encoding="utf-8")
    return load_engine(str(path), **{"threads": 1, **options})


def sources(architecture: Architecture, lengths: list[int], seed: int = 1) -> tuple[list[list[int]], Tensor, Tensor]:
    """Random sentences of such lengths, each ending with its end token; alone, and as one batch."""
    draw = torch.Generator().manual_seed(seed)
    alone = [[*torch.randint(4, 16, (length - 1,), generator=draw).tolist(), architecture.eos_token] for length in lengths]
    return alone, *pad(alone, architecture.pad_token)


@torch.inference_mode()
def stepwise(model: Any, src: Tensor, lengths: Tensor, fed: Tensor, beam: int = 1) -> Tensor:
    """The contexts of sentences that are fed these tokens [rows, steps] one by one, [rows, steps, width]."""
    slots = model.slots(len(fed))
    slots.join(model.encode(src, lengths), range(len(src)), lengths.tolist(), beam)
    return torch.stack([slots.body(tokens).clone() for tokens in fed.T], dim=1)


def together(
    model: Any,
    alone: Sequence[Sequence[int]],
    search: Search = Search(scored=True),  # noqa: B008 - frozen
    output: Output = Output(),  # noqa: B008 - frozen
    *,
    forced_len: int | None = None,
    max_len: int = 200,
) -> tuple[Hypothesis, ...]:
    """The translations of sentences that are decoded as one batch."""
    forced = None if forced_len is None else [forced_len] * len(alone)
    batching = mini(len(alone))
    return decode(model, alone, batching, search=search, output=output, max_len=max_len, forced_lens=forced).hypotheses


def steps_of(search: SlotSearch, tables: Tensor, limits: list[Limit], note: Callable[[], Any] = lambda: None) -> list[Any]:
    """What a search makes of each step's logits after each token.

    A step gives who is done with what, the tokens and their parents; the scores of those done; and what `note` returns.
    """
    search.join(range(len(limits)), limits)
    seen: list[Any] = []
    for table in tables:
        done = search.choose(search.project(table[search.tokens].clone()))
        parents = None if search.parents is None else search.parents.tolist()
        words = [(slot, hypothesis.tokens) for slot, hypothesis in done], search.tokens.tolist(), parents
        seen.append((words, [hypothesis.score for _, hypothesis in done], note()))
        gone = {slot for slot, _ in done}
        order = [slot for slot in range(len(limits)) if slot not in gone]
        search.leave(order)
        limits = [limits[slot] for slot in order]
        if not limits:
            break
    return seen


class Table:
    """A step model whose next token depends on the last alone: log-probabilities written in a table [vocab, vocab]."""

    pad_token, eos_token, start_token, unk_token = 0, 1, 2, 3
    max_positions = None

    device = torch.device("cpu")

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.vocab = table.shape[1]
        self.bias = torch.zeros(self.vocab)

    def encode(self, src: Tensor, src_lengths: Tensor) -> Any:
        return src.shape[0]

    def project(self, hidden: Tensor) -> Tensor:
        return hidden.clone()

    def products(self, hidden: Tensor, block: int | None = None) -> Iterator[tuple[int, Tensor]]:
        for first in range(0, self.vocab, block or self.vocab):
            yield first, hidden[:, first : first + (block or self.vocab)].contiguous()

    def slots(self, rows: int) -> TableSlots:
        return TableSlots(self.table)


class TableSlots:
    """Rows that carry nothing."""

    def __init__(self, table: Tensor) -> None:
        self.table, self._rows = table, 0

    def join(self, memory: Any, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        self._rows += len(sentences) * beam

    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        order = [slot for slot in range(self._rows // beam) if slot not in slots]
        self._rows = len(order) * beam
        return order

    def body(self, tokens: Tensor) -> Tensor:
        return self.table[tokens]

    def reorder(self, rows: Tensor) -> None:
        pass
