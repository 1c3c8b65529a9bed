"""The error of a data set that cannot be used."""

from core.errors import ProtoquadError


class DataError(ProtoquadError):
    """The files of a data set are missing, malformed or too few; the message says which and what to do."""
