"""The command line's fixtures, for campaigns that run whole commands."""

from tests.command_line import folder, process, simnmt, start, tree

__all__ = ["folder", "process", "simnmt", "start", "tree"]
