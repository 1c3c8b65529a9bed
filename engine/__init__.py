"""The serving engine: networks, batches, and the versions that answer."""
