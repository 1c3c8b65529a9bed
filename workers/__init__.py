"""The training job and what carries it."""
