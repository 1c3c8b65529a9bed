"""Errors of the serving runtime."""

from core.errors import BackboneError


class BrokenCompiledBackbone(BackboneError):
    """A compiled backbone on disk is not as it was written."""
