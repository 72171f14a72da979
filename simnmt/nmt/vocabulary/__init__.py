"""Fewer target tokens a step: clusters of contexts with their active columns, and lists of candidate words (FVP, SHARP-02)."""
