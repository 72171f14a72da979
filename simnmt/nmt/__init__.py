"""Real translation models: built or loaded, decoded step by step, trained where they need margins."""
