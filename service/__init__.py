"""HTTP in, domain out; the serving engine."""
