"""Tests the compose deployment with a real Docker: `make compose-test`."""
