"""Training of our own elastic classifiers: text and labels into an encoder that stays usable shallower and narrower."""
