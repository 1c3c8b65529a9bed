"""Reading a pickle as data. A pickle may call whatever it names: only what rebuilds an array is admitted."""

import _codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from bench.datasets.errors import DataError

_rebuild_array = np.empty(0).__reduce__()[0]  # numpy's own, whatever its module is called in this release
_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _rebuild_array,
    ("numpy._core.multiarray", "_reconstruct"): _rebuild_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _codecs.encode,  # how Python 3 writes bytes in the old protocols
}


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise DataError(f"it asks for {module}.{name}, which no data file needs") from None


def read_pickle(file: Path) -> Any:
    """The content of a pickle of plain values and arrays; text of Python 2 comes back as `str`."""
    try:
        with file.open("rb") as source:
            return _DataUnpickler(source, encoding="latin1").load()
    except FileNotFoundError:
        raise DataError(f"{file} is missing") from None
    except Exception as error:  # a damaged pickle may fail in any way at all
        raise DataError(f"{file} is refused: {error}; fetch the official file again") from error
