"""`simnmt live`: servers and gateways of a live testbed, and replays of a workload."""

from __future__ import annotations

import typer

from simnmt.cli.app import Verb
from simnmt.cli.live_replay import replay
from simnmt.cli.live_serve import gateway, server

app = typer.Typer(help="A live testbed: real servers and gateways, and replays of a workload.", no_args_is_help=True)
for verb in (server, gateway, replay):
    app.command(cls=Verb)(verb)
