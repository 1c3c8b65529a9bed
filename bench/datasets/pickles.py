"""Read a pickle as data. A pickle can call any function it names: only those that rebuild an array are allowed."""

import _codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from bench.datasets.stream import DataError

_rebuild_array = np.empty(0).__reduce__()[0]  # numpy's own, whatever its module is called in this release
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _rebuild_array,
    ("numpy._core.multiarray", "_reconstruct"): _rebuild_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _codecs.encode,  # how Python 3 writes bytes in the old protocols
}


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise DataError(f"it needs {module}.{name}, which is not allowed in a data file") from None


def read_pickle(file: Path) -> Any:
    """The content of a pickle of plain values and arrays; Python 2 text becomes `str`."""
    try:
        with file.open("rb") as source:
            return _DataUnpickler(source, encoding="latin1").load()
    except FileNotFoundError:
        raise DataError(f"{file} is missing") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{file} cannot be read: {error}; download the official file again") from error
