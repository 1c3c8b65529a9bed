"""Routes: HTTP in, domain out. Each resource has a file; `scoped` puts them under a model's name."""
