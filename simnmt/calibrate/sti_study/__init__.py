"""A study of a trained elastic classifier: what streaming it under deadlines costs in accuracy (STI-22 to 27)."""
