#!/usr/bin/env python3
"""Checks whether this container is healthy: its API if one listens, otherwise its worker.

It connects to the address in the settings, without a proxy. An API that accepts a connection but does not answer is not
healthy, even if a worker beside it is.
"""

import http.client
import os
import sys

SECONDS = 4.0
EVERY_ADDRESS = {"", "0.0.0.0", "::"}


def main() -> int:
    """Exit code 0 if healthy. The path may be given as an argument; the default is /livez."""
    path = sys.argv[1] if len(sys.argv) > 1 else "/livez"
    try:
        status = _ask(path)
    except ConnectionRefusedError:  # nothing listens: a worker's container, or the API has not started yet
        os.execvp("protoquad", ["protoquad", "worker-alive"])
    except (OSError, http.client.HTTPException) as error:
        print(f"{path} does not answer: {error!r}", file=sys.stderr)
        return 1
    print(f"{path} answers {status}")
    return 0 if status == http.client.OK else 1


def _ask(path: str) -> int:
    host = os.environ.get("PROTOQUAD_HOST", "")
    port = int(os.environ.get("PROTOQUAD_PORT") or 8000)
    connection = http.client.HTTPConnection("127.0.0.1" if host in EVERY_ADDRESS else host, port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
