"""The verbs of the command line. A verb parses, calls the library and prints; nothing is decided here."""

from simnmt.cli.app import main

__all__ = ["main"]
