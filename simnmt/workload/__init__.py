"""Length pairs from corpora, the length regression, and arrival processes, as columns."""
