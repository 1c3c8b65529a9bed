"""Persistence: rows and queries, no torch."""
