"""The scenario file: read, checked, and built into a world."""
