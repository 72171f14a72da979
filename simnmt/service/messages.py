"""The messages of LibreTranslate's `/translate`, and the headers by which gateway and server exchange times and states.

A request is JSON, a form or a query with `q`, `source` and `target`; an answer is `{"translatedText": ...}`, or
`{"error": ...}` with a status. Times travel in the standard header `Server-Timing`, milliseconds, and never as moments: the
two boxes need no common clock (CNMT-11).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any
from urllib.parse import quote, unquote

from simnmt.base.errors import SimnmtError, shorten

MOST_FORCED = 10_000
"""Most target tokens that a request may force."""
_MOST_S = 1e6
"""Longest time that a message may state; a longer one is no measurement."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a pair, which JSON may hold and UTF-8 may not."""
TIMING = "Server-Timing"
"""Header of an answer: milliseconds of waiting and execution, of the whole stay at the server, and to the first token."""
FORCED_LENGTH = "Simnmt-Target-Tokens"
"""Header of a request: the exact number of target tokens of each text, separated by commas, for validation."""
DEADLINE = "Simnmt-Deadline-Ms"
"""Header of a request: milliseconds within which an answer is of use."""
REQUEST = "Simnmt-Request"
"""Header of a request and its answer: the sender's number of the request, for logs."""
CLASS = "Simnmt-Class"
"""Header of a request: its class, which says before which others it is served."""
REPORT = "Simnmt-Report"
"""Header of an answer: sentences left active and waiting when this one ended, or the state of a streamed model."""
LENGTHS = "Simnmt-Lengths"
"""Header of an answer: source and target tokens, and the most sentences that were decoded together with it."""
DECISION = "Simnmt-Decision"
"""Header of a gateway's answer: the device that translated, and how the policy came to it."""
BY_TEXT = "headers"
"""Key in the answer to a list that has a number: the headers that the answer to each text would have alone."""


class ServiceError(SimnmtError):
    """A request that a service refuses or cannot answer, with the HTTP status of the answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after_s: float | None = None,
        is_stated: bool = False,
        remedy: str | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s
        """Seconds after which the client may try again; None if that would not help."""
        self.is_stated = is_stated
        """True if the service stated the error in an answer with status 200."""
        self.remedy = remedy
        """What the user of a client may do, if its cause is known."""
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class TranslateRequest:
    """A request for one or more translations."""

    texts: tuple[str, ...]
    is_list: bool
    """True if `q` was a list, so that the answer is one."""
    source: str
    target: str
    api_key: str = ""
    forced_lens: tuple[int, ...] | None = None
    """Exact target tokens of each text; None: each ends by itself."""
    deadline_s: float | None = None
    number: str = ""
    request_class: str = ""
    """Empty: the class that the service gives to requests that name none."""

    def body(self) -> bytes:
        """Return the request's body as JSON."""
        texts: Any = list(self.texts) if self.is_list else self.texts[0]
        content = {"q": texts, "source": self.source, "target": self.target, "format": "text"}
        return json.dumps(content | ({"api_key": self.api_key} if self.api_key else {}), ensure_ascii=False).encode()

    def headers(self) -> dict[str, str]:
        """Return the request's headers."""
        headers = {"Content-Type": "application/json"}
        if self.forced_lens is not None:
            headers[FORCED_LENGTH] = ",".join(map(str, self.forced_lens))
        if self.deadline_s is not None:
            headers[DEADLINE] = f"{1e3 * self.deadline_s:.3f}"
        if self.number:
            headers[REQUEST] = self.number
        if self.request_class:
            headers[CLASS] = quote(self.request_class)
        return headers


def parse_request(content: Mapping[str, Any], headers: Mapping[str, str], *, most_texts: int) -> TranslateRequest:
    """Return the request of a body's content. Raises `ServiceError` with status 400 for another content."""
    q = content.get("q")
    texts = (q,) if isinstance(q, str) else tuple(q) if isinstance(q, list) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ServiceError(400, "q must be a text, or a list of at least one text")
    if any(map(_SURROGATE.search, texts)):
        raise ServiceError(400, "q holds half of a surrogate pair, which is no text")
    if len(texts) > most_texts:
        raise ServiceError(400, f"q has {len(texts)} texts, more than {most_texts}")
    source, target = (_language(content, name) for name in ("source", "target"))
    if content.get("format", "text") != "text":
        raise ServiceError(400, "format must be text")
    api_key = content.get("api_key") or ""
    forced = headers.get(FORCED_LENGTH)
    return TranslateRequest(
        texts,
        isinstance(q, list),
        source,
        target,
        api_key if isinstance(api_key, str) else "",
        None if forced is None else _forced(forced, len(texts)),
        _deadline_s(headers.get(DEADLINE)),
        shorten(headers.get(REQUEST, "")),
        unquote(headers.get(CLASS, "")),
    )


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the content of a body in JSON. Raises `ServiceError` with status 400 for another body."""
    content = None
    with suppress(ValueError, RecursionError):
        content = json.loads(body, object_pairs_hook=_content_of)
    if not isinstance(content, dict):
        raise ServiceError(400, "the body is no JSON object")
    return content


def form_content(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the content of a form, with a list for several texts. Raises `ServiceError` as `parse_json`."""
    texts = [value for name, value in fields if name == "q"]
    content = _content_of([field for field in fields if field[0] != "q"])
    return content | ({"q": texts if len(texts) > 1 else texts[0]} if texts else {})


def _content_of(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(fields)
    if len(content) < len(fields):
        ((name, _),) = Counter(name for name, _ in fields).most_common(1)
        raise ServiceError(400, f"the key {shorten(name)!r} is given twice")
    return content


def _language(content: Mapping[str, Any], name: str) -> str:
    code = content.get(name)
    if not isinstance(code, str) or not 1 <= len(code) <= 20 or not code.isascii() or not code.isprintable():
        raise ServiceError(400, f"{name} must be the code of a language")
    return code


def number_of(text: str) -> float:
    """Return the number of a text; NaN for another text, and for a number that is not finite."""
    try:
        number = float(text)
    except ValueError:
        return nan
    return number if isfinite(number) else nan


def _forced(text: str, texts: int) -> tuple[int, ...]:
    lens = _integers(text)
    if len(lens) != texts or max(lens) > MOST_FORCED:
        raise ServiceError(400, f"{FORCED_LENGTH} must have a number of tokens for each text, {MOST_FORCED} at most")
    return lens


def _deadline_s(text: str | None) -> float | None:
    deadline_s = None if text is None else number_of(text) / 1e3
    if deadline_s is not None and not 0.0 < deadline_s < _MOST_S:
        raise ServiceError(400, f"{DEADLINE} must be a positive number of milliseconds")
    return deadline_s


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a request at a service, by its own clock."""

    queue_s: float
    execution_s: float
    total_s: float
    """From the arrival of the whole request to the sending of the answer."""
    first_token_s: float | None = None
    """From the engine's receipt of the request to its first token; None if the engine does not state it."""

    def header(self) -> str:
        """Return the value of `Server-Timing`, to a microsecond."""
        seconds = {"queue": self.queue_s, "execution": self.execution_s, "total": self.total_s, "first": self.first_token_s}
        return ", ".join(f"{name};dur={1e3 * value:.3f}" for name, value in seconds.items() if value is not None)


def parse_times(value: str | None) -> Times | None:
    """Return the times of a `Server-Timing` header; None if it has not all three, or one that is no duration."""
    durations = {name: float(number) / 1e3 for name, number in _DURATION.findall(value or "")}
    if not {"queue", "execution", "total"} <= durations.keys() or max(durations.values()) >= _MOST_S:
        return None
    return Times(durations["queue"], durations["execution"], durations["total"], durations.get("first"))


_DURATION = re.compile(r"([a-z]+);dur=(\d{1,12}(?:\.\d{1,9})?)(?![^\s,;])")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    texts: tuple[str, ...]
    times: Times | None
    """None if the service states none, as a foreign one does."""
    report: tuple[int, ...]
    lengths: tuple[int, int, int]
    """Source and target tokens, and the largest batch; 0 without the header."""
    by_text: tuple[Answer, ...] = ()
    """Of a list, the answer to each text as if it had been sent alone; empty if the service does not state them."""
    decision: str = ""
    """Account of a gateway's decision."""


def answer_body(
    texts: Sequence[str], is_list: bool, detected: str | None = None, by_text: Sequence[Mapping[str, str]] | None = None
) -> bytes:
    """Return the body of an answer.

    `detected`: the language, for a request that leaves it to the service; `by_text`: headers that each text would have alone.
    """
    content: dict[str, Any] = {"translatedText": list(texts) if is_list else texts[0]}
    if detected is not None:
        # One language is served, so nothing is detected: no confidence.
        language = {"language": detected, "confidence": 0}
        content["detectedLanguage"] = [language] * len(texts) if is_list else language
    if by_text is not None:
        content[BY_TEXT] = by_text
    return json.dumps(content, ensure_ascii=False).encode()


def parse_answer(body: bytes, headers: Mapping[str, str]) -> Answer:
    """Return the answer of a body with status 200. Raises `ServiceError` with status 502 for another body."""
    try:
        content = json.loads(body)
        translated = content["translatedText"]
    except (ValueError, KeyError, TypeError, RecursionError):
        what = describe_foreign_body(body) if body.lstrip()[:1] == b"<" else "holds no translatedText"
        raise ServiceError(502, f"the server's answer {what}") from None
    texts = tuple(translated) if isinstance(translated, list) else (translated,)
    if not all(isinstance(text, str) and not _SURROGATE.search(text) for text in texts):
        raise ServiceError(502, "the server's answer is no text")
    by_text, stated = list[Answer](), content.get(BY_TEXT)
    if isinstance(stated, list) and len(stated) == len(texts) and all(isinstance(one, dict) for one in stated):
        for text, one in zip(texts, stated, strict=True):
            by_text.append(_answer((text,), {name: str(value) for name, value in one.items()}))
    return _answer(texts, headers, tuple(by_text))


def _answer(texts: tuple[str, ...], headers: Mapping[str, str], by_text: tuple[Answer, ...] = ()) -> Answer:
    report, lengths = _integers(headers.get(REPORT)), _integers(headers.get(LENGTHS))
    times, decision = parse_times(headers.get(TIMING)), headers.get(DECISION, "")
    return Answer(texts, times, report, lengths if len(lengths) == 3 else (0, 0, 0), by_text, decision)


def describe_foreign_body(body: bytes) -> str:
    return "is a web page (HTML), not the API" if body.lstrip()[:1] == b"<" else "is no JSON"


def _integers(text: str | None) -> tuple[int, ...]:
    """Return the counts of a header; none if it is missing or wrong."""
    try:
        numbers = () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        return ()
    return numbers if all(0 <= number < 1e9 for number in numbers) else ()
