"""`simnmt sti`: a model in shards, from its training to a pipeline that loads and computes."""

from __future__ import annotations

import typer

from simnmt.cli import sti_inspect, sti_plan, sti_profile, sti_run, sti_shard, sti_train

app = typer.Typer(help="A model streamed from storage in shards of chosen fidelity, planned against a deadline and a buffer.")
app.command("train")(sti_train.train)
app.command("shard")(sti_shard.shard)
app.command("inspect")(sti_inspect.inspect)
app.command("profile")(sti_profile.profile)
app.command("plan")(sti_plan.plan)
app.command("run")(sti_run.run)
