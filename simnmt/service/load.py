"""The load generator: end nodes that send a scenario's requests to a live service, and note what becomes of each.

`run_precisely` runs it on an event loop whose timers fire within about 0.1 ms, and which ends well by a signal. Python's epoll
selector rounds timeouts up to whole milliseconds; but an epoll descriptor is itself readable when one of its sockets is ready,
so that `select` on it alone waits with microseconds, for any number of sockets.
"""

from __future__ import annotations

import asyncio
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import accumulate
from math import inf, nan
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.service.client import Exchange
from simnmt.service.messages import ServiceError, TranslateRequest, number_of

Answer = TypeVar("Answer")
STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGTERM") if hasattr(signal, name))
"""Ctrl-C, a terminal that closes, and a polite request to end."""
TOO_MANY = 429
"""Status of a service that is full: the client may try again."""
SOON_S = 0.05
"""Time before the first request of an open loop."""


class Translator(Protocol):
    """A client of a service, such as a `TranslationClient`."""

    async def translate(self, request: TranslateRequest, timeout_s: float | None = None) -> Exchange:
        """Ask for a translation. Raises `ServiceError`."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """Requests, and when they are sent."""

    requests: Sequence[TranslateRequest]
    offsets_s: Sequence[float] | None = None
    """When each is sent, seconds after the begin (open loop); None: one after another is answered (back to back), or by
    `clients`."""
    clients: int = 1
    """Without `offsets_s`: clients that each wait for their answer, think, and ask again (closed loop)."""
    think_s: Sequence[float] | None = None
    """Seconds of thinking in a closed loop, as the simulation draws them: of each client before its first request, then after
    the answer to each request; shape (clients + requests,). None: none."""
    service: Sequence[int] | None = None
    """Number of the service to which each is sent; None: all to the first."""
    pauses_s: Sequence[Sequence[float]] = ()
    """By try and request, seconds from a refusal (status 429) until the client asks again; infinite after its last try."""
    patience_s: Sequence[float] | None = None
    """By request, seconds from its first try after which its client gives up; None: as long as `timeout_s`."""


@dataclass(slots=True, eq=False)
class LoadLog:
    """The columns of a replay by text, in the order of the requests; shape (texts,), seconds of the monotonic clock.

    NaN where a request was not answered. Each text of a list counts as answered when it was translated (`Exchange.by_text`).
    """

    begin_s: float
    """When the replay began: from here, offsets and the clients' first thinking count."""
    due_s: Floats
    """When the request was to be sent: by the schedule, or at the end of its client's thinking."""
    sent_s: Floats
    received_s: Floats
    first_s: Floats
    """Arrival of the first token, of a service that sends tokens one by one or states when it had the first."""
    status: NDArray[np.int64]
    """HTTP status; 502 without a connection, 504 without an answer in time."""
    client: NDArray[np.int64]
    """Number of the client that asked in a closed loop; 0 otherwise."""
    target: NDArray[np.int64]
    """Index of the device that translated, by the gateway's account; -1 without one."""
    queue_s: Floats
    execution_s: Floats
    total_s: Floats
    src_len: NDArray[np.int64]
    """Source tokens with their end mark, as the service counts them; 0 if unknown."""
    tgt_len: NDArray[np.int64]
    estimate_s: Floats
    """The gateway's estimate of the transfer time at the decision."""
    age_s: Floats
    tgt_len_predicted: Floats
    deferred_queue_s: Floats
    """Wait at the gateway, which translated the request before it sent it on; NaN if it did not."""
    deferred_exe_s: Floats
    hit: NDArray[np.int64]
    """1 if the gateway's cache had the answer, 2 if the request waited there for a translation of the same text, else 0."""
    fell_back: NDArray[np.bool_]
    tries: NDArray[np.int64]
    retry_s: Floats
    """From the first try to the last."""
    fault: str = ""
    """Message about the first request that was not answered; empty if all were."""

    @property
    def lateness_s(self) -> Floats:
        """By how much later than due the generator itself sent each request."""
        return self.sent_s - self.due_s

    @property
    def deferred_s(self) -> Floats:
        """How long each request was translated at the gateway before that sent it on; 0 for one that was not."""
        return np.nan_to_num(self.deferred_queue_s + self.deferred_exe_s)

    @property
    def latency_s(self) -> Floats:
        """From the moment at which a request was due to its answer."""
        return self.received_s - self.due_s

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Requests with a translation."""
        return np.equal(self.status, 200)

    @classmethod
    def of(cls, requests: int) -> LoadLog:
        """Return the log of so many requests of which none has been sent."""
        whole = {"status": 0, "client": 0, "target": -1, "src_len": 0, "tgt_len": 0, "hit": 0, "tries": 1}
        floats = {field.name: nan for field in fields(cls) if field.type == "Floats"}
        columns: dict[str, Any] = {name: np.full(requests, missing) for name, missing in (whole | floats).items()}
        return cls(begin_s=nan, **columns, fell_back=np.zeros(requests, np.bool_))

    def note(self, request: int, exchange: Exchange) -> None:
        """Note the answer to a text."""
        answer = exchange.answer
        self.received_s[request], self.status[request] = exchange.received_s, 200
        self.first_s[request] = exchange.first_s
        if self.tries[request] == 1:
            self.sent_s[request] = exchange.sent_s
        if (times := answer.times) is not None:
            self.queue_s[request], self.execution_s[request] = times.queue_s, times.execution_s
            self.total_s[request] = times.total_s
            if times.first_token_s is not None:  # stated, not streamed
                self.first_s[request] = exchange.received_s - times.total_s + times.first_token_s
        self.src_len[request], self.tgt_len[request] = answer.lengths[:2]
        account = dict(part.split("=", 1) for part in answer.decision.split(";") if "=" in part)
        target = account.get("target", "")
        if target.isascii() and target.isdecimal() and len(target) < 10:
            self.target[request] = int(target)
        for name in ("estimate_s", "age_s", "deferred_queue_s", "deferred_exe_s"):
            getattr(self, name)[request] = number_of(account.get(name, ""))
        self.tgt_len_predicted[request] = number_of(account.get("tgt_len", ""))
        self.hit[request] = int(account["hit"]) if account.get("hit") in ("1", "2") else 0
        self.fell_back[request] = account.get("fallback") == "1"


async def send_load(
    load: Load,
    services: Sequence[Translator],
    *,
    timeout_s: float = 60.0,
    ended: Callable[[], None] = lambda: None,
    begin_s: float | None = None,
) -> LoadLog:
    """Send all requests and return what became of them. An open loop wants precise timers (`run_precisely`).

    `ended`: called for each text whose request has ended. `begin_s`: moment from which the offsets of an open loop count;
    None: soon.
    """
    count, texts = len(load.requests), [len(request.texts) for request in load.requests]
    log, first = LoadLog.of(sum(texts)), [0, *accumulate(texts)]

    async def one(request: int, due_s: float, client: int = 0) -> None:
        service = services[0 if load.service is None else load.service[request]]
        rows = slice(first[request], first[request + 1])
        log.client[rows], log.due_s[rows], log.sent_s[rows] = client, due_s, (sent_s := time.monotonic())
        patience_s = timeout_s if load.patience_s is None else load.patience_s[request]
        for pause_s in [*(column[request] for column in load.pauses_s), inf]:
            now_s = time.monotonic()
            log.retry_s[rows], left_s = now_s - sent_s, sent_s + patience_s - now_s
            try:
                exchange = await service.translate(load.requests[request], max(min(timeout_s, left_s), 1e-3))
                for row, of_text in enumerate(exchange.by_text(), start=rows.start):
                    log.note(row, of_text)
            except ServiceError as error:
                log.status[rows], log.fault = error.status, log.fault or error.message
                if error.status == TOO_MANY and time.monotonic() + pause_s < sent_s + patience_s:
                    log.tries[rows] += 1
                    await asyncio.sleep(pause_s)
                    continue
            break
        for _ in range(texts[request]):
            ended()

    async def think_and_ask(client: int) -> None:
        due_s = log.begin_s + think_s[client]
        while True:
            await asyncio.sleep(max(due_s - time.monotonic(), 0.0))
            if (request := next(waiting, None)) is None:
                return
            await one(request, due_s, client)
            due_s = time.monotonic() + think_s[load.clients + request]

    if load.offsets_s is None:
        log.begin_s = time.monotonic()
        think_s = load.think_s or [0.0] * (load.clients + count)
        waiting = iter(range(count))
        # A client behind as many others as there are requests never asks.
        clients = sorted(range(load.clients), key=think_s.__getitem__)[:count]
        await asyncio.gather(*map(think_and_ask, clients))
    else:
        log.begin_s, tasks = begin_s or time.monotonic() + SOON_S, list[asyncio.Task[None]]()
        for request, offset_s in enumerate(load.offsets_s):
            due_s = log.begin_s + float(offset_s)
            if (left_s := due_s - time.monotonic()) > 0.0:
                await asyncio.sleep(left_s)
            tasks.append(asyncio.create_task(one(request, due_s)))
        await asyncio.gather(*tasks)
    return log


if sys.platform == "linux":
    import select

    class PreciseSelector(selectors.EpollSelector):
        """An epoll selector whose timeouts have microseconds."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Return the ready descriptors and their events, empty after `timeout` seconds; None waits for ever."""
            if timeout is not None and timeout > 0.0 and self.fileno() < 1024:  # beyond, `select` takes none
                select.select([self.fileno()], [], [], timeout)
                timeout = 0.0
            return super().select(timeout)

else:  # kqueue and Windows' select have fine timeouts
    PreciseSelector = selectors.DefaultSelector


def new_precise_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop with precise timers."""
    return asyncio.SelectorEventLoop(PreciseSelector())


def run_precisely(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine on a new loop with precise timers; at its end, also by an interrupt, cancel whatever it left running."""
    loop = new_precise_loop()
    task = loop.create_task(work)
    try:
        with _signals_that_cancel(loop, task):
            return loop.run_until_complete(task)
    finally:
        loop.run_until_complete(cancel_others())
        loop.close()


@contextmanager
def _signals_that_cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> Iterator[None]:
    """Let signals that end the program cancel a task, and handle the first of them, as outside, at the end of the block.

    An exception of a signal's handler could otherwise meet a callback of a library, which would drop it and go on.
    """
    arrived: list[int] = []
    handlers: dict[int, Any] = {}

    def cancel(number: int) -> None:
        arrived.append(number)
        task.cancel()

    if threading.current_thread() is threading.main_thread():
        for number in STOPPING:
            if callable(handler := signal.getsignal(number)):
                loop.add_signal_handler(number, cancel, number)
                handlers[number] = handler
    try:
        yield
    finally:
        for number, handler in handlers.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


async def cancel_others() -> None:
    """Cancel all other tasks of the loop, and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0.0)  # transports close
