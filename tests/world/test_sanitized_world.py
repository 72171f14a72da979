"""The compiled world under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from simnmt.base.compile import WORLD_LIBRARY
from tests.campaigns.harness import SCALE
from tests.sanitized import SANITIZE, run_sanitized, takes
from tests.worlds import needs_compiled

pytestmark = needs_compiled

THREAD_SANITIZE = ("-g1", "-fsanitize=thread")
BEGIN = """
import threading
from dataclasses import replace
from pathlib import Path
from hypothesis import given, settings
from simnmt.world import structures
from tests.world.random_worlds import SPECIAL, random_worlds
from tests.worlds import assert_agree, in_compiled, in_reference

structures.WORLD_LIBRARY = replace(structures.WORLD_LIBRARY, folder=Path.cwd(), flags=FLAGS)
assert structures.library() is not None
campaign = settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None)
"""
COMPARE = """
for kind in SPECIAL:
    @given(random_worlds(kind))
    @campaign
    def compare(world):
        assert_agree(world.run(in_reference), world.run(in_compiled))
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
alone = [world.run(in_compiled) for world in worlds]

def run_all(step):
    try:
        for world, trail in list(zip(worlds, alone))[::step]:
            assert_agree(world.run(in_compiled), trail)
    except BaseException as failure:
        failures.append(failure)

threads = [threading.Thread(target=run_all, args=(step,)) for step in (1, -1, 1, -1)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
print("equal")
"""


def run_worlds(folder: Path, script: str, examples: int, sanitize: tuple[str, ...], runtime: str) -> tuple[int, str, str]:
    """Run a script with the sources copied to a folder, on so many random worlds; return its status and what it printed."""
    for source in WORLD_LIBRARY.folder.glob("*.[ch]"):
        shutil.copy(source, folder)
    whole = (BEGIN + script).replace("EXAMPLES", str(examples))
    run = run_sanitized(replace(WORLD_LIBRARY, folder=folder), whole, sanitize, runtime, "portable")
    return run.returncode, run.stdout, run.stderr


@pytest.mark.deep
@pytest.mark.skipif(not takes(SANITIZE), reason="no C compiler is installed that takes the sanitizers")
def test_no_world_reads_or_writes_beyond_its_memory(tmp_path: Path) -> None:
    examples = round(8 * SCALE) if SCALE > 1.0 else 3
    assert run_worlds(tmp_path, COMPARE, examples, SANITIZE, "libasan.so") == (0, "equal\n", "")


@pytest.mark.deep
@pytest.mark.skipif(not takes(THREAD_SANITIZE), reason="no C compiler is installed that takes the thread sanitizer")
def test_worlds_in_several_threads_at_once_share_nothing(tmp_path: Path) -> None:
    assert run_worlds(tmp_path, THREADS, round(8 * SCALE), THREAD_SANITIZE, "libtsan.so") == (0, "equal\n", "")
