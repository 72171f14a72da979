"""`simnmt live`: servers, gateways and links of a live testbed, and what their logs show."""

from __future__ import annotations

import typer

from simnmt.cli.app import Verb
from simnmt.cli.live_link import link
from simnmt.cli.live_replay import replay
from simnmt.cli.live_serve import gateway, server

app = typer.Typer(help="A live testbed: real servers, gateways and links, and what their logs show.", no_args_is_help=True)
for verb in (server, gateway, link, replay):
    app.command(cls=Verb)(verb)
