"""Recorded traces: every form in which others measured a network, read, mended and described."""
