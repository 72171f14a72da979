"""STI's rivals executed as they are planned: Load&Exec, pipelines of one bitwidth, models in memory (STI-19)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from simnmt.costs.sti_cost import StiCost
from simnmt.elastic.pipeline.execution import Execution
from simnmt.elastic.pipeline.pipeline import Pipeline, load_then_run
from simnmt.elastic.pipeline.preload_buffer import PreloadBuffer
from simnmt.elastic.pipeline.turns import Engaged
from simnmt.sti.baselines import Contestant, contestants

if TYPE_CHECKING:
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.store.shard_store import ShardStore

LOAD_FIRST = "Load&Exec"
"""The contestant that overlaps nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Rival:
    """One way of running the model, planned and executed."""

    contestant: Contestant
    execution: Execution | None
    """None where nothing ends in time this way."""


def rivals(
    store: ShardStore, encoder: ElasticEncoder, cost: StiCost, engaged: Engaged, token_ids: Tensor, mask: Tensor
) -> Iterator[Rival]:
    """Execute each of `contestants` once, for the same deadline and pace. Errors of `Pipeline`."""
    for each in contestants(cost, engaged.deadline_s, length=engaged.length):
        plan = each.plan
        if plan is None:
            yield Rival(each, None)
        elif each.name == LOAD_FIRST:
            yield Rival(
                each,
                load_then_run(
                    store,
                    encoder,
                    plan,
                    token_ids,
                    mask,
                    pace_bytes_per_s=engaged.pace_bytes_per_s,
                    threads=engaged.threads,
                ),
            )
        else:
            # Sized by what is there: a mean record is smaller than some.
            sizes = [store.record(*shard, bits).size for shard, bits in plan.bits.items() if shard in plan.preloaded]
            pipeline = Pipeline(
                store,
                encoder,
                plan,
                PreloadBuffer(sum(sizes)),
                pace_bytes_per_s=engaged.pace_bytes_per_s,
                threads=engaged.threads,
            )
            yield Rival(each, pipeline.run(token_ids, mask))
