"""A server of several models: each batch holds one model's sentences, and no model waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simnmt.batching import Batcher, Batching, Encode, Join
from simnmt.batching.batcher import ModelBatcher
from tests.batching.one_server import batchings


@given(batchings(), st.integers(1, 3), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=40), st.data())
def test_batches_hold_one_model_and_are_refilled_while_its_sentence_is_the_oldest(
    batching: Batching, models: int, sentences: list[tuple[int, int]], data: st.DataObject
) -> None:
    batcher, single = ModelBatcher(batching, models), Batcher(batching)
    model = [number % models for number, _ in sentences]
    active, waiting, encoded = list[int](), list[int](), set[int]()
    arriving, now_s = list(range(len(sentences))), 0.0

    def ask() -> Encode | Join | None:
        move = batcher.next(len(active), now_s, max((sentences[request][1] for request in active), default=0))
        if models == 1:
            assert move == single.next(len(active), now_s, max((sentences[request][1] for request in active), default=0))
        return move

    while arriving or waiting or active:
        now_s += data.draw(st.sampled_from([0.0, 0.125, 1.0]))
        for request in arriving[: data.draw(st.integers(0, 4))] if arriving else ():
            arriving.remove(request)
            waiting.append(request)
            batcher.arrive(request, sentences[request][1], now_s, model[request])
            single.arrive(request, sentences[request][1], now_s)
        if not arriving and not active:
            batcher.close()
            single.close()
        assert batcher.waiting == len(waiting)
        moved = True
        while moved and waiting and len(active) <= batching.threshold:
            move = ask()
            moved = move is not None
            if move is None:
                assert active or arriving, "a closed server with nothing active has a move"
                break
            if active and batching.collected is None and not encoded:
                assert model[min(waiting)] == model[active[0]], "an older sentence of another model waits for the next batch"
            assert {model[request] for request in (*move.requests, *active)} == {batcher.model}
            if isinstance(move, Encode):
                encoded |= {*move.requests}
            else:
                active += move.requests
                encoded -= {*move.requests}
                waiting = [request for request in waiting if request not in move.requests]
        if active:
            active = active[data.draw(st.integers(1, len(active))) :]
