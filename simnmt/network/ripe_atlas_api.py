"""RIPE Atlas results, fetched from its REST API and cached as received, with their digest.

Addresses and parameters are those of RIPE NCC's reference (atlas.ripe.net/docs/apis/rest-api-reference). Results are public
unless the owner of the measurement hides them; a key goes into the header `Authorization: Key ...`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import logging
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import platformdirs

from simnmt.base.errors import short_repr, shorten
from simnmt.base.files import read_bounded, written_whole
from simnmt.network.errors import TraceError
from simnmt.network.http_get import MOST_BYTES, get
from simnmt.network.text_files import naming_write_errors
from simnmt.network.trace_options import ReadOptions, Reply
from simnmt.network.traces import ripe_atlas
from simnmt.network.traces.readings import Trace, mended
from simnmt.network.traces.tool_json import parse_json

SETTLED_S = 3600.0
"""Results may arrive this long after their time, so an answer that was fetched earlier may be incomplete."""


_LOG = logging.getLogger("simnmt.network")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Origin and digest of a cached answer."""

    url: str
    fetched: str
    """Moment of the fetch, in UTC."""
    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, url: str, raw: bytes, fetched: str) -> CacheEntry:
        """Return the entry of an answer."""
        return cls(url, fetched, hashlib.sha256(raw).hexdigest(), len(raw))


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of answers, by the address that they came from."""

    folder: Path

    def files(self, url: str) -> tuple[Path, Path]:
        """Return the files of an address: (the answer, its entry)."""
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        return self.folder / f"{name}.json", self.folder / f"{name}.manifest.json"

    def find(self, url: str, *, until_s: float, remarks: list[str]) -> tuple[CacheEntry, bytes] | None:
        """Return the cached answer of `url` if it is intact and was fetched when the results until `until_s` had arrived.

        Appends to `remarks` the reason for which an existing entry is not used.
        """
        body, manifest = self.files(url)
        if not manifest.exists():
            return None
        try:
            kept = CacheEntry(**json.loads(read_bounded(manifest)))
            raw = read_bounded(body, MOST_BYTES)
            fetched_s = datetime.fromisoformat(kept.fetched).timestamp()
            sound = (kept.url, CacheEntry.of(url, raw, "").sha256) == (url, kept.sha256)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            sound = False
        if not sound:
            remarks.append(f"{body} is damaged: fetched again")
            return None
        if fetched_s < until_s + SETTLED_S:
            remarks.append("the cached answer is older than the last results: fetched again")
            return None
        return kept, raw

    def keep(self, kept: CacheEntry, raw: bytes) -> None:
        """Write both files, the answer first. Raises `TraceError` if the folder cannot be written."""
        body, manifest = self.files(kept.url)
        with naming_write_errors(self.folder, "choose another --cache"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # results need not be public
            with written_whole(body) as partial:
                partial.write_bytes(raw)
            with written_whole(manifest) as partial:
                partial.write_text(json.dumps(asdict(kept), indent=1) + "\n", encoding="utf-8")


def default_folder() -> Path:
    """Return the folder of this cache among the user's caches."""
    return platformdirs.user_cache_path("simnmt", appauthor=False) / "ripe-atlas"


BASE_URL = "https://atlas.ripe.net"
LONGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class Query:
    """A query for the results of one probe and one measurement between two moments.

    Raises `TraceError` for numbers, moments or an address that cannot be used.
    """

    measurement: int
    probe: int
    start_s: int
    """Unix time."""
    stop_s: int
    base_url: str = BASE_URL

    def __post_init__(self) -> None:
        for option, number in (("--measurement", self.measurement), ("--probe", self.probe)):
            if number < 1:
                raise TraceError(f"{option} {number}: is not a valid number of RIPE Atlas", remedy="give 1 or more")
        if self.stop_s <= self.start_s:
            raise TraceError(f"--stop {day(self.stop_s)} is not after --start {day(self.start_s)}", remedy="swap them")
        try:
            parts = urlsplit(self.base_url)
            bare = not (parts.query or parts.fragment or parts.username)
            usable = parts.scheme in ("http", "https") and parts.hostname and bare and parts.port != 0  # raises for no number
        except ValueError:
            usable = False
        if not usable:
            raise TraceError(f"--base-url {shorten(self.base_url)}: is no address of a web site", remedy=f"such as {BASE_URL}")

    @property
    def url(self) -> str:
        """Address of the results in the API."""
        parameters = {"probe_ids": self.probe, "start": self.start_s, "stop": self.stop_s, "format": "json"}
        return f"{self.base_url.rstrip('/')}/api/v2/measurements/{self.measurement}/results/?{urlencode(parameters)}"

    def __str__(self) -> str:
        return f"measurement {self.measurement}, probe {self.probe}, {day(self.start_s)} to {day(self.stop_s)}"


@dataclass(frozen=True, slots=True, eq=False)
class FetchedTrace:
    """The trace of a query, and its origin."""

    trace: Trace
    kept: CacheEntry
    from_cache: bool
    remarks: tuple[str, ...]
    """Remarks on the cache and on the queried time, a sentence each."""

    @property
    def notes(self) -> dict[str, str]:
        """Lines for the header of a file."""
        return {"fetched": f"{self.kept.url} at {self.kept.fetched}", "sha256": self.kept.sha256}


def read_key(path: Path) -> str:
    """Return the API key that is the only content of a file. Raises `TraceError`, which never shows the key."""
    try:
        key = read_bounded(path, 2 * LONGEST_KEY, pipes=True).decode("ascii").strip()
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", path=path, remedy="check the path") from None
    except UnicodeDecodeError:
        key = ""
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable() or " " in key:
        raise TraceError("is no API key", path=path, remedy="give a file that holds the key and nothing else")
    return key


def fetch(query: Query, cache: Cache | None = None, *, key: str | None = None, how: ReadOptions | None = None) -> FetchedTrace:
    """Return the round trips of a query, from the cache if it holds all of them, else from the API.

    Raises `TraceError` if they cannot be fetched, or if there are none.
    """
    if key is not None and not _private(query.base_url):
        raise TraceError("an API key would be sent without encryption", remedy="give a --base-url that begins with https")
    remarks: list[str] = []
    reply = (how or ReadOptions()).reply
    if cache and (cached := cache.find(query.url, until_s=query.stop_s, remarks=remarks)):
        kept, raw = cached
        _LOG.info("%s: from the cache, fetched %s", kept.url, kept.fetched)
        return FetchedTrace(_trace(query, raw, reply), kept, True, tuple(remarks))
    raw = get(query.url, _status_errors(query, key is not None), {"Authorization": f"Key {key}"} if key else {})
    trace = _trace(query, raw, reply)  # before it is cached: an answer that cannot be used must not be found again
    kept = CacheEntry.of(query.url, raw, datetime.now(timezone.utc).isoformat(sep=" ", timespec="seconds"))
    if cache:
        cache.keep(kept, raw)
    if query.stop_s > time.time():
        remarks.append("--stop lies ahead: results that come until then are not in it")
    return FetchedTrace(trace, kept, False, tuple(remarks))


def _trace(query: Query, raw: bytes, reply: Reply) -> Trace:
    source = Path(f"RIPE Atlas {query}")
    how = ReadOptions(reply=reply, probe=query.probe, measurement=query.measurement)
    results = parse_json(source, _checked(query, raw))
    return mended(ripe_atlas.read_ripe_atlas(source, results, how)[0], source)


def day(unix_s: int) -> str:
    """Return a Unix time as text in UTC."""
    try:
        moment = datetime.fromtimestamp(unix_s, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return str(unix_s)
    return moment.strftime("%Y-%m-%dT%H:%MZ")


def _checked(query: Query, raw: bytes) -> str:
    """Return the text of an answer. Raises `TraceError` unless it is a list of results of a ping or a traceroute."""
    try:
        text = raw.decode("utf-8")
        results = json.loads(text)
    except (ValueError, RecursionError):
        what = "a page instead of results" if raw.lstrip()[:1] == b"<" else "what is no JSON, perhaps cut off on its way"
        raise TraceError(f"{_site(query)} sent {what}", remedy="try again, or check --base-url") from None
    if not isinstance(results, list):
        raise TraceError(f"{_site(query)} sent no list of results", remedy="check --base-url")
    if not results:
        raise TraceError(f"{query}: no results", remedy="check when the probe took part in the measurement")
    for result in results:
        kind = result.get("type") if isinstance(result, dict) else None
        if kind is not None and kind not in ripe_atlas.KINDS:
            what = f"measurement {query.measurement} is of type {short_repr(kind)}"
            raise TraceError(what, remedy="give one that is a ping or a traceroute")
    return text


def _status_errors(query: Query, with_key: bool) -> dict[int, TraceError]:
    """Return the error for each HTTP status that another attempt would not change."""
    private = "the owner of the API key may not see it" if with_key else "give --api-key-file"
    number = f"measurement {query.measurement}"
    return {
        400: TraceError(f"{_site(query)} does not understand {query}", remedy="check the numbers and the times"),
        401: TraceError(f"{_site(query)} does not know the API key", remedy="check --api-key-file"),
        403: TraceError(f"{number} is not public", remedy=private),
        404: TraceError(f"{_site(query)} has no {number}", remedy="check --measurement"),
    }


def _site(query: Query) -> str:
    return shorten(urlsplit(query.base_url).netloc)


def _private(base_url: str) -> bool:
    """Return whether a request to this site is encrypted or stays on this machine."""
    parts = urlsplit(base_url)
    host: Any = parts.hostname or ""
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    return parts.scheme == "https" or local
