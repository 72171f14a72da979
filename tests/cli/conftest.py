"""The command line's fixtures, which the campaigns use too."""

from tests.command_line import folder, process, simnmt, start, tree

__all__ = ["folder", "process", "simnmt", "start", "tree"]
