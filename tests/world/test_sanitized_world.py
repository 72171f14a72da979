"""The compiled world under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from simnmt.base.compile import PORTABLE, WORLD_LIBRARY
from simnmt.world.structures import library
from tests.campaigns.harness import SCALE
from tests.sanitized import SANITIZE, run_sanitized, takes

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled world was not compiled")

THREAD_SANITIZE = ("-g1", "-fsanitize=thread")
BEGIN = """
import threading
from dataclasses import replace
from pathlib import Path
from hypothesis import given, settings
from simnmt.world import engine, reference, structures
from tests.world.random_worlds import SPECIAL, assert_agree, random_worlds

structures.WORLD_LIBRARY = replace(structures.WORLD_LIBRARY, folder=Path.cwd(), flags=FLAGS)
assert structures.library() is not None
campaign = settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None)
"""
COMPARE = """
for kind in SPECIAL:
    @given(random_worlds(kind))
    @campaign
    def compare(world):
        assert_agree(world.run(reference.simulate), world.run(engine.simulate_compiled))
    compare()
print("equal")
"""
THREADS = """
worlds, failures = [], []

@given(random_worlds("all"))
@campaign
def collect(world):
    worlds.append(world)

collect()
alone = [world.run(engine.simulate_compiled) for world in worlds]

def run_all(step):
    try:
        for world, trail in list(zip(worlds, alone))[::step]:
            assert_agree(world.run(engine.simulate_compiled), trail)
    except BaseException as failure:
        failures.append(failure)

threads = [threading.Thread(target=run_all, args=(step,)) for step in (1, -1, 1, -1)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
print("equal")
"""


def run_worlds(
    folder: Path, script: str, examples: int, sanitize: tuple[str, ...], runtime: str
) -> subprocess.CompletedProcess[str]:
    """Run a script with the sources in a folder, on so many random worlds."""
    whole = (BEGIN + script).replace("EXAMPLES", str(examples))
    return run_sanitized(replace(WORLD_LIBRARY, folder=folder), whole, sanitize, runtime, (PORTABLE,))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with the sources of the compiled world."""
    for source in WORLD_LIBRARY.folder.glob("*.[ch]"):
        shutil.copy(source, tmp_path)
    return tmp_path


@pytest.mark.skipif(not takes(SANITIZE), reason="no C compiler is installed that takes the sanitizers")
@pytest.mark.deep
def test_no_world_reads_or_writes_beyond_its_memory(sources: Path) -> None:
    run = run_worlds(sources, COMPARE, round(8 * SCALE) if SCALE > 1.0 else 3, SANITIZE, "libasan.so")
    assert (run.returncode, run.stdout, run.stderr) == (0, "equal\n", "")


@pytest.mark.deep
@pytest.mark.skipif(not takes(THREAD_SANITIZE), reason="no C compiler is installed that takes the thread sanitizer")
def test_worlds_in_several_threads_at_once_share_nothing(sources: Path) -> None:
    run = run_worlds(sources, THREADS, round(8 * SCALE), THREAD_SANITIZE, "libtsan.so")
    assert (run.returncode, run.stdout, run.stderr) == (0, "equal\n", "")


@pytest.mark.deep
@pytest.mark.skipif(not takes(THREAD_SANITIZE), reason="no C compiler is installed that takes the thread sanitizer")
def test_the_thread_sanitizer_detects_a_counter_that_worlds_share(sources: Path) -> None:
    header = sources / "clock.h"
    comparison = "    return at_s < other_s"
    text = header.read_text(encoding="utf-8")
    assert comparison in text
    shared = text.replace(comparison, f"    static int64_t compared;\n    compared += 1;\n{comparison}")
    header.write_text(shared, encoding="utf-8")
    # Threads of a busy box may not meet at once.
    runs = (run_worlds(sources, THREADS, worlds, THREAD_SANITIZE, "libtsan.so") for worlds in (3, 8, 20, 40))
    assert any(run.returncode != 0 and "data race" in run.stderr for run in runs)
