"""What the benchmark's data sets refuse."""

from core.errors import ProtoquadError


class DataError(ProtoquadError):
    """The files of a data set are missing, malformed or too few; the message says which and what to do."""
