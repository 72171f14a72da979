"""Memory that the model takes, and the time in which a fresh process loads it."""

from __future__ import annotations

import gc
import json
import math
import mmap
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

import numpy as np
import pandas as pd
import psutil

from simnmt.calibrate.harness import Case, counted, nothing
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part
from simnmt.calibrate.settings import Settings
from simnmt.nmt.architecture import FAMILIES
from simnmt.nmt.engine import BACKENDS, Work, load_engine
from simnmt.nmt.pretrained_config import model_path
from simnmt.profile.blocks import MemoryBlock, ModelLoad, PageCache
from simnmt.streaming.page_cache import drop, resident_pages

WARM_LOADS, COLD_LOADS = 5, 3
QUICK_WARM_LOADS, QUICK_COLD_LOADS = 3, 1
WARM_SHARE, COLD_SHARE = 0.95, 0.05
"""Least and greatest share of the files in the page cache."""
MOST_LOAD_S = 600.0
"""Longest time of a process that loads the model."""
FIRST = Work(src_len=8, tgt_len=2)
"""The translation with which a load ends: the first one of a process takes longer than later ones."""
SMALL: dict[str, Any] = {
    **dict.fromkeys(("layers", "encoder_layers", "decoder_layers", "source_layers"), 1),
    **dict.fromkeys(("hidden", "embedding", "source_hidden", "d_model", "ffn"), 16),
    **dict.fromkeys(("src_vocab", "tgt_vocab", "vocab"), 64),
    "heads": 2,
    "stack": [],
    "attention_width": None,
    "pad_token": 0,
    "unk_token": 1,
    "start_token": 2,
    "eos_token": 3,
}
"""Sizes of a model that takes next to no memory, so that the memory of its process is that of the engine."""


def loading_cases(bench: Bench) -> Cases:
    """Return a load from a warm page cache, and one after the files were dropped from it; one that draws random weights."""
    settings, account = bench.settings, bench.engine.account
    if account.device != "cpu":
        bench.remarks.append("no model_memory: loading is measured on the CPU alone")
        return {}
    small = {name: SMALL.get(name, value) for name, value in account.architecture.items()}
    files = model_files(settings.model) if account.weights == "checkpoint" else []
    about = {"file_bytes": sum(path.stat().st_size for path in files)}

    def case(state: PageCache, prepare_cache: Callable[[Sequence[Path]], None], loads: int) -> Case:
        load = partial(load_in_fresh_process, settings, small, partial(cache_state, state, files))
        return Case(load, before=partial(prepare_cache, files), prepare=nothing, most_rounds=loads, about=about)

    if not files:
        return {"drawn": case("no files", read, 1)}
    warm, cold = (QUICK_WARM_LOADS, QUICK_COLD_LOADS) if bench.quick else (WARM_LOADS, COLD_LOADS)
    return {"warm": case("warm", read, warm), "cold": case("cold", drop_all, cold)}


def model_files(model: str) -> list[Path]:
    """Return the files of a model's folder that are not empty."""
    return [path for path in sorted(Path(model_path(model, weights=True)).rglob("*")) if path.is_file() and path.stat().st_size]


def read(files: Sequence[Path]) -> None:
    """Read the files, so that they are in the page cache."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def drop_all(files: Sequence[Path]) -> None:
    """Drop the files from the page cache as far as the system does."""
    for path in files:
        with path.open("rb") as file:
            drop(file.fileno())


def cache_state(wanted: PageCache, files: Sequence[Path]) -> PageCache:
    """Return the state of the files in the page cache: the wanted one if the system confirms it."""
    if not files:
        return "no files"
    pages, resident = 0, 0
    for path in files:
        with path.open("rb") as file:
            size = path.stat().st_size
            known = resident_pages(file.fileno(), size)
        if known is None:
            return "unknown"
        pages, resident = pages + math.ceil(size / mmap.PAGESIZE), resident + known
    is_so = resident >= WARM_SHARE * pages if wanted == "warm" else resident <= COLD_SHARE * pages
    return wanted if is_so else "unknown"


def load_in_fresh_process(settings: Settings, small: dict[str, Any], cache: Callable[[], PageCache]) -> dict[str, Any]:
    """Load the model in a new process; return `seconds` and `resident_bytes`, and `cache` as it was before.

    The process begins with the engine's libraries, and a small model of the same architecture has used them. Without
    `seconds`, there is `fault`.
    """
    context = multiprocessing.get_context("forkserver")
    of_family = ["transformers.models.auto.modeling_auto"] if small["kind"] in FAMILIES else []
    context.set_forkserver_preload([BACKENDS[settings.backend].partition(":")[0], *of_family])
    ours, theirs = context.Pipe()
    state, process = cache(), context.Process(target=report_load, args=(settings, small, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(MOST_LOAD_S):
            return {"seconds": None, "fault": f"the process that loaded the model did not end within {MOST_LOAD_S:g} s"}
        return {"cache": state, **ours.recv()}
    except EOFError:
        process.join()
        return {"seconds": None, "fault": f"the process that loaded the model ended with status {process.exitcode}"}
    finally:
        ours.close()
        process.kill()
        process.join()


def report_load(settings: Settings, small: dict[str, Any], connection: Connection) -> None:
    """Load the small model, then the model; send what the model took."""
    options = {key: getattr(settings, key) for key in ("backend", "device", "compute_type", "threads", "seed")}
    try:
        with tempfile.TemporaryDirectory(prefix="simnmt-small-model-") as folder:
            path = Path(folder) / "small.json"
            path.write_text(json.dumps(small), encoding="utf-8")
            load_engine(str(path), **options).run(FIRST)
        gc.collect()
        process = psutil.Process()
        before, begin_s = process.memory_full_info().uss, perf_counter()
        engine = load_engine(settings.model, **options)
        engine.run(FIRST)
        seconds = perf_counter() - begin_s
        connection.send({"seconds": seconds, "resident_bytes": process.memory_full_info().uss - before})
    except Exception as error:  # whatever fails here, the other parts of the profile are measured already
        connection.send({"seconds": None, "fault": f"{type(error).__name__}: {error}"})


def fit_loads(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `model_memory`: medians of the loads, by the state of the page cache."""
    rows = counted(frame, every=True)
    if rows.empty:
        bench.remarks.append(f"no model_memory: {frame['fault'].iloc[0]}")
        return {"model_memory": None}
    return {"model_memory": memory_block(rows)}


def memory_block(rows: pd.DataFrame) -> MemoryBlock:
    """Return `model_memory` of the loads that counted."""
    loads = tuple(
        ModelLoad(load_s=row["seconds"], resident_bytes=max(int(row["resident_bytes"]), 0), cache=row["cache"])
        for row in rows.to_dict("records")
    )
    by_cache = {state: [load.load_s for load in loads if load.cache == state] for state in get_args(PageCache)}
    cache = next(state for state, loads_s in by_cache.items() if loads_s)
    return MemoryBlock(
        kind="measured",
        resident_bytes=int(np.median([load.resident_bytes for load in loads])),
        load_s=float(np.median(by_cache[cache])),
        cache=cache,
        cold_load_s=float(np.median(by_cache["cold"])) if by_cache["cold"] else None,
        file_bytes=int(rows["file_bytes"].iloc[0]) or None,
        samples=loads,
    )


PARTS = (
    Part(
        "model_memory", ("model_memory",), loading_cases, fit_loads, 9, rounds=lambda _: WARM_LOADS, apart=lambda settings: True
    ),
)
