"""glibc is kept from giving every thread memory of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ARENAS_OF_TEN_THREADS = """
import ctypes, sys, threading
from protoquad.allocator import limit_arenas

if sys.argv[2] == "few":
    limit_arenas()
together = threading.Barrier(10)

def work():
    together.wait()
    ctypes.CDLL(None).malloc(1000)
    together.wait()

threads = [threading.Thread(target=work) for _ in range(10)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries have no arenas")
def test_threads_share_two_arenas(tmp_path: Path) -> None:
    """Left to itself it makes several times as many, each of which keeps what it once had."""
    arenas = {}
    for kind in ("few", "many"):
        file = tmp_path / kind
        subprocess.run([sys.executable, "-c", ARENAS_OF_TEN_THREADS, str(file), kind], check=True)
        arenas[kind] = len(re.findall(r"<heap nr=", file.read_text()))

    assert arenas["few"] == 2 < arenas["many"]
