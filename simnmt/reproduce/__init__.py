"""The papers' tables as published, and ours beside them."""
