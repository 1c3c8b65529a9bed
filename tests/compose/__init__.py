"""Proves the compose deployment on a real engine: `make compose-test`."""
