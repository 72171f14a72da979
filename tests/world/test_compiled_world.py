"""The compiled world gives the bits of the world in SimPy, and says what it does not cover."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from simnmt.base.compile import WORLD_LIBRARY, find_compiler
from simnmt.base.errors import InputError
from simnmt.batching import Batching
from simnmt.policies import LeastTotal, ProbedEstimate, QuantileEstimate, TransferEstimate
from simnmt.profile.batch_cost import DecodingCost
from simnmt.results.requests import Trail
from simnmt.world import batch_pool, compiled_world, simulation
from simnmt.world.batch_pool import BatchServerSpec
from simnmt.world.deciders import Beliefs
from simnmt.world.fifo_server import FifoPool
from simnmt.world.server import FewestTokens
from tests.campaigns.harness import SCALE
from tests.kernels.sanitized import SANITIZE, takes
from tests.world.batched_worlds import BATCHINGS, COST, asked
from tests.world.decoding import batchings
from tests.world.random_worlds import World, assert_equal, assert_equal_accounts, costs, random_worlds

pytestmark = pytest.mark.skipif(compiled_world.library() is None, reason="the compiled world was not compiled")


DEEP = SCALE > 1.0
WORLDS = 10_000 if DEEP else 300
"""Random worlds that are compared: in the suite, and in `make check-deep`."""


@seed(20)
@given(random_worlds(), st.sampled_from([0, compiled_world.PAUSE_AFTER_MS]))
@settings(max_examples=WORLDS, database=None)
def test_random_worlds_are_equal_to_the_bit(world: World, pause_after_ms: int) -> None:
    """In both engines, the compiled one with a pause between all events, and without."""
    compiled = partial(compiled_world.simulate_compiled, pause_after_ms=pause_after_ms)
    assert_equal(world.run(simulation.simulate), world.run(compiled))


@given(batchings(), costs(), st.lists(st.tuples(st.integers(1, 16), st.integers(0, 12), st.integers(0, 40)), max_size=60))
@settings(max_examples=round(60 * SCALE))
def test_decoded_sentences_are_equal_to_the_bit(
    batching: Batching, cost: DecodingCost, sentences: list[tuple[int, int, int]]
) -> None:
    src_len, tgt_len, eighths = np.array(sentences, np.int64).reshape(-1, 3).T
    arrival_s = np.sort(eighths) / 8.0
    reference = batch_pool.decode_all(batching, cost, src_len, tgt_len, arrival_s)
    compiled = compiled_world.decode_all_compiled(batching, cost, src_len, tgt_len, arrival_s)
    for name in ("finish_s", "first_token_s", "begin_s", "total_s"):
        assert np.asarray(getattr(reference, name)).tobytes() == np.asarray(getattr(compiled, name)).tobytes(), name
    assert_equal_accounts([reference.account], [compiled.account])


def test_every_failed_allocation_is_a_memory_error_and_nothing_else() -> None:
    """Of a run with batches, views, an oracle's foresight, and more requests under way than the first arrays hold."""
    requests, choice = asked(300, rate_rps=60.0), lambda block: LeastTotal(block.execution_s)
    spec = BatchServerSpec(BATCHINGS["half-empty"], COST)

    def run(allocations: int) -> Trail:
        beliefs = Beliefs(lambda decider, target: QuantileEstimate(0.1, 0.5, 4), true_backlog=True)
        pool = spec.servers(3, FewestTokens())
        settings = {"deciders": 2, "workers": 2, "judged_share": 1.0, "allocations": allocations}
        return compiled_world.simulate_compiled(requests, choice, beliefs, [pool], **settings)

    whole, failures = run(-1), 0
    for allocations in range(100_000):
        try:
            trail = run(allocations)
        except MemoryError:
            failures += 1
            continue
        break
    assert failures > 50
    assert_equal(trail, whole)


def test_what_the_compiled_world_does_not_cover_is_named_and_runs_in_simpy() -> None:
    requests = asked(50)
    alternately = lambda block: lambda in_block, delay_s: in_block % 2  # noqa: E731

    def run(**engine: str) -> Trail:
        beliefs = Beliefs(lambda decider, target: TransferEstimate(0.1))
        return compiled_world.simulate(requests, alternately, beliefs, [FifoPool()], **engine)

    assert run().engine == "simpy"
    with pytest.raises(InputError, match="the compiled world does not cover a policy in Python"):
        run(engine="compiled")


def test_an_error_of_the_network_ends_the_run() -> None:
    def broken(at_s: float) -> float:
        raise OSError("no such moment")

    beliefs = Beliefs(lambda decider, target: ProbedEstimate(0.1, 0.01, broken), probes=True)
    with pytest.raises(OSError, match="no such moment"):
        compiled_world.simulate_compiled(asked(50), lambda block: LeastTotal(block.execution_s), beliefs, [FifoPool()])


SANITIZED = """
from dataclasses import replace
from pathlib import Path
from hypothesis import given, settings
from simnmt.world import compiled_library, compiled_world, simulation
from tests.world.random_worlds import SPECIAL, assert_equal, random_worlds

compiled_library.WORLD_LIBRARY = replace(compiled_library.WORLD_LIBRARY, folder=Path.cwd(), flags=FLAGS)
assert compiled_world.library() is not None
for kind in SPECIAL:
    @given(random_worlds(kind))
    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None)
    def compare(world):
        assert_equal(world.run(simulation.simulate), world.run(compiled_world.simulate_compiled))
    compare()
print("equal")
"""


@pytest.mark.skipif(not takes(SANITIZE), reason="no compiler here that takes the sanitizers")
def test_no_world_reads_or_writes_beyond_its_memory(tmp_path: Path) -> None:
    """With the sanitizers for addresses and undefined behaviour, of which the former must be loaded before Python."""
    for source in WORLD_LIBRARY.folder.glob("*.[ch]"):
        shutil.copy(source, tmp_path)
    flags = (*(flag for flag in WORLD_LIBRARY.flags if flag != "-DNDEBUG"), *SANITIZE, "-O1")
    replace(WORLD_LIBRARY, folder=tmp_path, flags=flags).compile_level()
    preloaded = subprocess.run([*find_compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = os.environ | {"LD_PRELOAD": preloaded.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    script = SANITIZED.replace("EXAMPLES", str(round(40 * SCALE))).replace("FLAGS", repr(flags))
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "equal\n", "")
