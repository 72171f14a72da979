"""The sharp decoder by the torch model: oracle of the C kernels, and in their place without a compiler (SHARP-01).

It computes in the type of the model: products are not rounded to 16 bits, nothing is looked up in a table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from simnmt.kernels.beam_search import Ints, SharpTranslation, beam_search
from simnmt.kernels.native_library import KernelError
from simnmt.kernels.sharp_model import Float32, ForcedSteps, check_words
from simnmt.nmt.attentional_model import AttentionalModel

Floats = NDArray[np.float64]
FIRST = np.zeros(1, np.int64)


class ReferenceMember:
    """A model on the CPU, in evaluation mode, and its state within one sentence; `begin` comes before the first step."""

    def __init__(self, model: AttentionalModel) -> None:
        self.model = model

    @torch.inference_mode()
    def encode(self, words: Sequence[int] | Ints) -> Float32:
        """Return the states of a sentence, [src_len, width]. Raises `KernelError` as `SourceEncoder.encode` does."""
        ids = np.asarray(words, np.int64)
        check_words(ids, self.model.src_embedding.num_embeddings)
        states: Float32 = self.model.read_source(torch.from_numpy(ids)[None], torch.tensor([len(ids)]))[0][0].float().numpy()
        return states

    @torch.inference_mode()
    def begin(self, source: Float32) -> None:
        memory = self.model.memory(torch.from_numpy(source).to(self.model.weight.dtype)[None])
        self._source, self._kept = memory.source, memory.state

    @torch.inference_mode()
    def step(self, words: Ints, parents: Ints) -> tuple[Floats, Floats]:
        """Return logits [rows, vocab] and attention [rows, src_len] of hypotheses that extend `parents` by `words`."""
        kept = tuple(state[torch.from_numpy(parents)] for state in self._kept)
        source = self._source.expand(len(words), -1, -1)
        output, self._kept, attended = self.model.attended_body(torch.from_numpy(words), kept, source, None)
        return self.model.project(output).double().numpy(), attended.double().numpy()


def reference_decode(
    members: Sequence[ReferenceMember],
    sources: Sequence[Float32],
    beam: int,
    steps: int,
    candidates: Ints | None = None,
    *,
    forced: bool = False,
) -> SharpTranslation:
    """Return the best translation under the members' averaged distributions (SHARP-14), by `beam_search`."""
    if steps < 1:
        raise KernelError(f"{steps} steps: 1 is the least")
    for member, source in zip(members, sources, strict=True):
        member.begin(source)
    model = members[0].model
    ids = np.arange(model.vocab) if candidates is None else candidates
    never = (ids == model.pad_token) | (forced & (ids == model.eos_token))

    def step(words: Ints, parents: Ints) -> tuple[Floats, Ints]:
        return averaged(members, words, parents, ids, never)

    return beam_search(step, beam=beam, steps=steps, start=model.start_token, eos=model.eos_token, ids=ids)


def averaged(
    members: Sequence[ReferenceMember], words: Ints, parents: Ints, ids: Ints, never: NDArray[np.bool_]
) -> tuple[Floats, Ints]:
    """Return log-probabilities [rows, ids] of the mean distribution over `ids`, and each row's most attended position.

    `never`: which of `ids` cannot be chosen.
    """
    logits, attended = zip(*(member.step(words, parents) for member in members), strict=True)
    log_probs = [log_softmax(np.where(never, -np.inf, of_member[:, ids]), axis=1) for of_member in logits]
    return np.logaddexp.reduce(log_probs) - np.log(len(members)), np.mean(attended, axis=0).argmax(axis=1)


def reference_forced(member: ReferenceMember, source: Float32, tokens: Sequence[int] | Ints) -> ForcedSteps:
    """Follow a given translation (SHARP-10); only padding is banned."""
    words, model = np.asarray(tokens), member.model
    check_words(words, model.vocab)
    member.begin(source)
    ids = np.arange(model.vocab)
    before = np.array([model.start_token, *words[:-1]])
    steps = [averaged([member], word[None], FIRST, ids, ids == model.pad_token)[0][0] for word in before]
    best = np.array([log_probs.argmax() for log_probs in steps])
    return ForcedSteps(best, np.array([log_probs[word] for log_probs, word in zip(steps, words, strict=True)], np.float32))
