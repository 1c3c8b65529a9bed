"""Imports without the garbage collector, which would take a fifth of the time that torch takes to be imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Nothing is collected meanwhile, and what is made here is never examined: modules stay as long as the process."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
