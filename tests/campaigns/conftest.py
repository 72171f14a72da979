"""The command line's fixtures, for campaigns that run whole commands."""

from tests.command_line import folder, process, simnmt, start, tree
from tests.network.recording.conftest import serve

__all__ = ["folder", "process", "serve", "simnmt", "start", "tree"]
