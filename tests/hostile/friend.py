"""A friendly client: asks for the service's health and for small predictions, and remembers how long each took."""

import http.client
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

SECONDS_BETWEEN = 0.1
SECONDS_TO_GIVE_UP = 30.0


@dataclass
class Waited:
    seconds: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[int(0.99 * (len(self.seconds) - 1))] if self.seconds else 0.0

    @property
    def longest(self) -> float:
        return max(self.seconds, default=0.0)


class Friend:
    """Asks as long as it is open; each time on a new connection, as a health check does."""

    def __init__(self, host: str, port: int, key: str, image: bytes) -> None:
        self.host, self.port = host, port
        self.livez, self.predict = Waited(), Waited()
        self._over = threading.Event()
        boundary = "friend"
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'
        body = head.encode() + image + f"\r\n--{boundary}--\r\n".encode()
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
        }
        self._threads = [
            threading.Thread(target=self._ask, args=(self.livez, "GET", "/livez", None, {}), daemon=True),
            threading.Thread(target=self._ask, args=(self.predict, "POST", "/predict", body, headers), daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(SECONDS_TO_GIVE_UP + 5)

    def _ask(self, waited: Waited, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
        over = False
        while not over:
            began = time.perf_counter()
            connection = http.client.HTTPConnection(self.host, self.port, timeout=SECONDS_TO_GIVE_UP)
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                response.read()
                waited.answers[str(response.status)] += 1
            except (OSError, http.client.HTTPException) as error:
                waited.answers[type(error).__name__] += 1
            finally:
                connection.close()
            waited.seconds.append(time.perf_counter() - began)
            over = self._over.wait(SECONDS_BETWEEN)
