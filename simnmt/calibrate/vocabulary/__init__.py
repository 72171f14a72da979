"""What a part of the vocabulary gains on this box, and what it costs in quality: measured."""
