"""A study of a trained model: clusters and candidate lists at many sizes, held against held-out text."""
