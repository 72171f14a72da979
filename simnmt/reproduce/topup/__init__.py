"""The paper on top-up batching (anonymous ACL submission): its occupancies and speeds, and what device profiles say of them.

Read `published` first (what the paper prints), then `strategies` (what is set side by side), `occupancies` (which step has how
many active: no device needed), `speeds` (all sentences at hand), `online` (they arrive), `claims`, `reproduction` (all of it).
"""
