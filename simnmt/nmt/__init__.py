"""Real translation models: built from an architecture or a checkpoint, decoded step by step, trained where they need margins."""
