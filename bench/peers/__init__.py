"""Servers to compare with: small, with the same backbone, classifier and decoder as the service."""
