"""The whole beam search of one sentence in plain numpy (SHARP-01): oracle of the C search, and what runs without a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.errors import KernelError
from simnmt.kernels.sharp.arithmetic import Floats
from simnmt.kernels.sharp.asked import Asked, Ints, banned
from simnmt.kernels.sharp.reference_member import ReferenceMember, log_softmax, softmax
from simnmt.kernels.sharp.translation import ForcedSteps, SharpTranslation
from simnmt.kernels.sharp.weights import Float32, SharpTokens


def stops(best_completed: float, best_partial: float, margin: float = 3.0) -> bool:
    """Whether the best partial translation is so far behind the best completed one that the search ends (SHARP-03).

    Before any is completed, `best_completed` is minus infinity, and it never ends.
    """
    return best_completed - best_partial >= margin


def distinct(parents: Sequence[int] | Ints) -> list[int]:
    """The rows of the step before whose states the hypotheses share, each once, in order of appearance (SHARP-09)."""
    return list(dict.fromkeys(int(parent) for parent in parents))


@dataclass(slots=True)
class _Path:
    """What led to the open hypotheses: of each step their words, parents, and where each parent's step looked."""

    words: list[Ints] = field(default_factory=list)
    parents: list[Ints] = field(default_factory=list)
    attended: list[Ints] = field(default_factory=list)

    def back(self, length: int, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The words of the hypothesis in `row` after `length` steps, and where each looked."""
        words, attended = [], []
        for step in range(length - 1, -1, -1):
            words.append(int(self.words[step][row]))
            row = int(self.parents[step][row])
            attended.append(int(self.attended[step][row]))
        return tuple(reversed(words)), tuple(reversed(attended))


def reference_decode(members: Sequence[ReferenceMember], sources: Sequence[Float32], asked: Asked) -> SharpTranslation:
    """The best translation under the members' averaged distributions (SHARP-14).

    A hypothesis that ends among the `beam` best of its step is completed, and the best `beam` that do not end go on. After
    the last step what is open competes as it stands. Ties go to the hypothesis, then the candidate, that comes first.
    """
    for member, source in zip(members, sources, strict=True):
        member.begin(source, asked.candidates)
    ids = np.arange(members[0].vocab) if asked.candidates is None else asked.candidates
    never = banned(ids, asked.tokens, forced=asked.forced)
    words, parents, scores = np.array([asked.tokens.start]), np.array([0]), np.zeros(1)
    path = _Path()
    best, best_score = (-1, 0), -np.inf
    shared = total = steps = 0
    stopped = False
    while steps < asked.steps and len(scores) and not stopped:
        log_probs, attended = averaged(members, words, parents, never)
        shared, total = shared + len(distinct(parents)), total + len(parents)
        sums = (scores[:, None] + log_probs).ravel()
        order = np.argsort(-sums, kind="stable")[: 2 * asked.beam]
        order = order[sums[order] > -np.inf]
        rows, columns = np.divmod(order, len(ids))
        ends = ids[columns] == asked.tokens.eos
        for rank in np.flatnonzero(ends[: asked.beam]):
            if sums[order[rank]] > best_score:
                best, best_score = (steps, int(rows[rank])), float(sums[order[rank]])
        going_on = np.flatnonzero(~ends)[: asked.beam]
        words, parents, scores = ids[columns[going_on]], rows[going_on], sums[order[going_on]]
        path.words.append(words)
        path.parents.append(parents)
        path.attended.append(attended)
        steps += 1
        stopped = bool(len(scores)) and stops(best_score, float(scores[0]), asked.stop_margin)
    if len(scores) and not stopped and scores[0] > best_score:
        best, best_score = (steps, 0), float(scores[0])
    if best[0] < 0:
        raise KernelError("no word can be chosen")
    return SharpTranslation(path.back(*best)[0], best_score, path.back(*best)[1], steps, shared / total, stopped)


def averaged(members: Sequence[ReferenceMember], words: Ints, parents: Ints, never: NDArray[np.bool_]) -> tuple[Floats, Ints]:
    """Log-probabilities [rows, candidates] of the members' mean distribution, and where each row looked most in the mean.

    What is `never` chosen is impossible: the others' probabilities sum to one.
    """
    stepped = [member.step(words, parents) for member in members]
    logits = [np.where(never, -np.inf, logits) for logits, _ in stepped]
    looked = np.mean([attended for _, attended in stepped], axis=0).argmax(axis=1)
    if len(members) == 1:
        return log_softmax(logits[0]), looked
    with np.errstate(divide="ignore"):
        return np.log(np.mean([softmax(each) for each in logits], axis=0)), looked


def reference_forced(
    member: ReferenceMember, source: Float32, tokens: SharpTokens, words: Ints, places: Ints, candidates: Ints | None = None
) -> ForcedSteps:
    """What the model thinks along the translation `words`, which are the columns `places` of the candidates."""
    member.begin(source, candidates)
    ids = np.arange(member.vocab) if candidates is None else candidates
    never = banned(ids, tokens)
    best, log_probs, row = np.zeros(len(words), np.int64), np.zeros(len(words), np.float32), np.zeros(1, np.int64)
    for step, place in enumerate(places):
        fed = np.array([words[step - 1] if step else tokens.start])
        found, _ = averaged([member], fed, row, never)
        best[step], log_probs[step] = ids[found[0].argmax()], found[0, place]
    return ForcedSteps(best, log_probs)
