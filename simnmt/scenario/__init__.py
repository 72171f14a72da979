"""The scenario file: read YAML with positions, apply overrides, check against the schema, write templates.

Start with `configuration` and `parts` (every key a scenario may hold), then `document` (the file as it was written, and
`--set`), then `validation` and `topology` (the first fault in one line, with its place). Nothing here runs an experiment: no
import of `experiment`.
"""
