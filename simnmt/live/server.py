"""The live server: one model behind LibreTranslate's API, batched by the `Batcher` of `simnmt.batching`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from prometheus_client import Counter, Gauge, Histogram

from simnmt.base import VERSION
from simnmt.live.deployment import check_engine
from simnmt.live.engine_process import EngineProcess, EngineSettings, Execution, Reference
from simnmt.live.front import EventLog, Front, FrontSettings, Result, Task, outcome_of
from simnmt.nmt.source_lines import SourceLine
from simnmt.results.live_log import BeginRecord, ReferenceRecord, RequestRecord
from simnmt.service.http_server import Access, Limits, Metrics
from simnmt.service.messages import ServiceError


class EngineMetrics:
    """Metrics of the engine of a service."""

    def __init__(self, metrics: Metrics, waiting: Callable[[], int]) -> None:
        registry = metrics.registry
        Gauge("simnmt_sentences_waiting", "Sentences under way.", registry=registry).set_function(waiting)
        tokens = Counter("simnmt_tokens", "Tokens, by side.", ["side"], registry=registry)
        self._source_tokens, self._target_tokens = tokens.labels("source"), tokens.labels("target")
        buckets = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
        self._queue = Histogram("simnmt_queue_seconds", "Wait before execution.", buckets=buckets, registry=registry)
        self._execution = Histogram("simnmt_execution_seconds", "Execution.", buckets=buckets, registry=registry)
        self._batch = Histogram(
            "simnmt_batch_sentences", "Most sentences decoded together.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=registry
        )

    def observe(self, result: Result) -> None:
        """Count a translated text."""
        src_len, tgt_len, batch = result.lengths
        self._source_tokens.inc(src_len)
        self._target_tokens.inc(tgt_len)
        self._queue.observe(result.queue_s)
        self._execution.observe(result.execution_s)
        self._batch.observe(batch)


def local_result(line: SourceLine, execution: Execution, submitted_s: float) -> Result:
    """Return the result of an execution on this box."""
    return Result(
        execution.text,
        max(execution.begin_s - submitted_s, 0.0),
        execution.end_s - execution.begin_s,
        (execution.left_active, execution.left_waiting),
        (len(line.ids), execution.tgt_len, execution.largest_batch),
    )


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a live server."""

    engine: EngineSettings
    front: FrontSettings = field(default_factory=FrontSettings)
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    expected_hash: str | None = None
    """Hash of the engine that must run, by its profile; None: any."""


class LiveServer:
    """A server of one model. `start` it, then `front.service.serve_until_stopped`, then `close`."""

    def __init__(
        self,
        settings: ServerSettings,
        log: TextIO | None = None,
        on_error: Callable[[str], None] = print,
        engine: EngineProcess | None = None,
    ) -> None:
        metrics = Metrics()
        self._log = EventLog(log, on_error)
        self._expected_hash = settings.expected_hash
        self._owns_engine = engine is None
        self.engine = engine or EngineProcess(settings.engine)
        self.engine.on_reference, self.engine.on_error = self._note_reference, on_error
        self._observed = EngineMetrics(metrics, lambda: self.waiting)
        self.front = Front(self, settings.front, settings.access, settings.limits, metrics, on_error, self._note_egress)

    async def start(self) -> None:
        """Load the model and listen. Raises `InputError` for what cannot be used."""
        running = await self.engine.ready()
        check_engine("this server", running, self._expected_hash)
        self._log.write(BeginRecord("server", ("server",), None, {"server": running}))
        await self.front.service.start()

    async def close(self) -> None:
        """End the engine, unless it outlives the server."""
        self.engine.on_reference = lambda reference: None
        if self._owns_engine:
            await self.engine.close()

    def hurry(self) -> None:
        """Let no sentence wait for company, since the service ends."""
        self.engine.hurry()

    @property
    def waiting(self) -> int:
        """Texts under way."""
        return self.front.waiting

    async def translate(self, task: Task) -> Result:
        """See `Translator`."""
        line = self.engine.line(task.text)
        if not line.ids:
            return Result("", 0.0, 0.0)
        return local_result(line, *await self.engine.execute(line, task.forced_len))

    def health(self) -> Mapping[str, Any]:
        """See `Translator`."""
        return {"service": "server", "simnmt": VERSION, **self.engine.describe()}

    def _note_reference(self, reference: Reference) -> None:
        self._log.write(ReferenceRecord("server", reference.at_s, reference.execution_s, reference.busy_s))

    def _note_egress(self, task: Task, result: Result | ServiceError, egress_s: float) -> None:
        if isinstance(result, ServiceError):
            self._log.write(
                RequestRecord(
                    task.number, task.ingress_s, None, None, None, None, None, None, None, None, egress_s, outcome_of(result)
                )
            )
            return
        self._observed.observe(result)
        src_len, tgt_len, batch = result.lengths
        self._log.write(
            RequestRecord(
                task.number,
                task.ingress_s,
                task.ingress_s,
                src_len,
                tgt_len,
                0,
                "server",
                result.queue_s,
                result.execution_s,
                0.0,
                egress_s,
                "done",
                max(batch, 1),
            )
        )
