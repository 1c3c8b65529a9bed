"""The attacks, each a function of a target that goes on until its time is over. `ATTACKS` names them all."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, partial

from tests import bombs
from tests.hostile.target import PIECE, Target

MEGABYTE = 1024 * 1024
BOUNDARY = "edge"
FORM = f"Content-Type: multipart/form-data; boundary={BOUNDARY}"
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"

Attack = Callable[[Target], None]


@dataclass(frozen=True)
class Planned:
    attack: Attack
    known: bool  # whether the attacker has a key
    callers: int = 1
    bombs: tuple[str, ...] = ()  # to be made beforehand


ATTACKS: dict[str, Planned] = {}


def planned(*, known: bool, callers: int = 1, bombs: tuple[str, ...] = ()) -> Callable[[Attack], Attack]:
    def remember(attack: Attack) -> Attack:
        ATTACKS[attack.__name__] = Planned(attack, known, callers, bombs)
        return attack

    return remember


# JSON


def _json(target: Target, method: str, path: str, head: bytes, unit: bytes, tail: bytes) -> None:
    size = int(95 * MEGABYTE * target.scale)
    body = head + unit * (size // len(unit)) + tail
    while target.going():
        target.ask(method, path, JSON, body=body)


@planned(known=False, callers=2)
def json_heap_to_rename(target: Target) -> None:
    _json(target, "PATCH", "/classes/1", b'{"name":[', b"[],", b"[]]}")


@planned(known=False, callers=2)
def json_heap_to_make_a_model(target: Target) -> None:
    _json(target, "POST", "/models", b'{"name":[', b"[],", b"[]]}")


@planned(known=True, callers=2)
def json_heap_to_predict(target: Target) -> None:
    _json(target, "POST", "/predict", b'{"images":[', b"[],", b"[]]}")


@planned(known=True, callers=2)
def json_empty_strings(target: Target) -> None:
    _json(target, "POST", "/predict", b'{"images":[', b'"",', b'""]}')


@planned(known=True, callers=2)
def json_of_escapes(target: Target) -> None:
    _json(target, "POST", "/predict", b'{"images":["', rb"\n\u0041\/", b'"]}')


@planned(known=True, callers=2)
def json_of_spaces_in_base64(target: Target) -> None:
    _json(target, "POST", "/predict", b'{"images":["', b"A ", b'"]}')


@planned(known=True, callers=2)
def json_of_space(target: Target) -> None:
    _json(target, "POST", "/predict", b"{", b" \n", b"}")


@planned(known=True, callers=2)
def json_that_is_deep(target: Target) -> None:
    _json(target, "POST", "/classes", b'{"name":', b"[", b"")


@planned(known=True, callers=2)
def json_of_one_long_name(target: Target) -> None:
    _json(target, "POST", "/classes", b'{"name":"', b"\xc3\xa4", b'","shots":[]}')


@planned(known=True, callers=2)
def json_heap_to_infer(target: Target) -> None:
    _json(target, "POST", "/v2/models/default/infer", b'{"parameters":[', b"[],", b"[]]}")


@planned(known=True, callers=2)
def json_lists_to_infer(target: Target) -> None:
    _json(target, "POST", "/v2/models/default/infer", b'{"inputs":[{"data":[', b'[["QQ=="]],', b"[]]}]}")


@planned(known=True, callers=2)
def binary_tensor_of_empty_images(target: Target) -> None:
    size = int(95 * MEGABYTE * target.scale) // 4 * 4
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor]}).encode()
    while target.going():
        length = f"Inference-Header-Content-Length: {len(head)}"
        target.ask("POST", "/v2/models/default/infer", length, body=head + bytes(size))


# Forms


def _part(name: str, content: bytes, filename: str | None = "a.png") -> bytes:
    file = f'; filename="{filename}"\r\nContent-Type: image/png' if filename is not None else ""
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + content + b"\r\n"


def _form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def _forms(target: Target, path: str, body: bytes) -> None:
    while target.going():
        target.ask("POST", path, FORM, body=body)


@planned(known=True, callers=2)
def form_of_many_parts(target: Target) -> None:
    _forms(target, "/predict", _form(*[_part("images", b"x")] * int(500_000 * target.scale)))


@planned(known=True, callers=2)
def form_of_many_names(target: Target) -> None:
    _forms(target, "/classes", _form(*[_part("name", b"x", None)] * int(500_000 * target.scale)))


@planned(known=True, callers=2)
def form_with_a_large_name(target: Target) -> None:
    _forms(target, "/classes", _form(_part("name", b"x" * int(95 * MEGABYTE * target.scale), None)))


@planned(known=True, callers=2)
def form_of_line_breaks(target: Target) -> None:
    _forms(target, "/predict", _form(_part("images", b"\r\n--edg" * int(13 * MEGABYTE * target.scale))))


@planned(known=True, callers=2)
def form_without_a_boundary(target: Target) -> None:
    _forms(target, "/predict", b"\r" * int(95 * MEGABYTE * target.scale))


@planned(known=True, callers=4)
def form_with_a_slow_content_type(target: Target) -> None:
    kind = "Content-Type: multipart/form-data" + '; a="\\' * 5000
    while target.going():
        target.ask("POST", "/predict", kind, body=b"x")


# Bodies


@planned(known=True, callers=30)
def thirty_large_bodies(target: Target) -> None:
    _forms(target, "/predict", _form(_part("images", random.Random(1).randbytes(int(90 * MEGABYTE * target.scale)))))


@planned(known=True, callers=30)
def thirty_large_bodies_of_json(target: Target) -> None:
    _json(target, "POST", "/predict", b'{"images":["', b"AAAA", b'"]}')


@planned(known=False, callers=30)
def thirty_large_bodies_of_strangers(target: Target) -> None:
    _forms(target, "/predict", bytes(int(90 * MEGABYTE * target.scale)))


@planned(known=True, callers=10)
def bodies_of_unknown_length(target: Target) -> None:
    def endless() -> Iterator[bytes]:
        yield b"%x\r\n%b\r\n" % (len(first), first)
        while True:
            yield b"%x\r\n%b\r\n" % (PIECE, bytes(PIECE))

    first = _part("images", b"")[:-2]
    while target.going():
        target.ask("POST", "/predict", FORM, CHUNKED, body=endless())


def _chunks(target: Target, unit: bytes, head: bytes = b"") -> None:
    def endless() -> Iterator[bytes]:
        yield head
        while True:
            yield unit * (PIECE // len(unit))

    while target.going():
        target.ask("POST", "/predict", FORM, CHUNKED, body=endless())


@planned(known=True, callers=2)
def chunks_of_one_byte(target: Target) -> None:
    _chunks(target, b"1\r\na\r\n")


@planned(known=False, callers=2)
def endless_trailers(target: Target) -> None:
    _chunks(target, b"Trailer: a\r\n", b"0\r\n")


@planned(known=True, callers=2)
def endless_chunk_extension(target: Target) -> None:
    _chunks(target, b"x", b"1;")


@planned(known=True, callers=2)
def broken_chunks(target: Target) -> None:
    while target.going():
        for body in (
            b"-1\r\n",
            b"ffffffffffffffffff\r\n",
            b"zz\r\n",
            b"5\r\nab",
            b"\r\n\r\n\r\n",
            b"0\r\n\r\nGET / HTTP",
        ):
            target.ask("POST", "/predict", FORM, CHUNKED, body=iter([body]))


# Heads and connections


@planned(known=False, callers=2)
def endless_header(target: Target) -> None:
    _stream(target, b"GET /livez HTTP/1.1\r\nX: ", b"a" * PIECE)


@planned(known=False, callers=2)
def endless_headers(target: Target) -> None:
    _stream(target, b"GET /livez HTTP/1.1\r\n", b"X: a\r\n" * 40_000)


@planned(known=False, callers=2)
def endless_address(target: Target) -> None:
    _stream(target, b"GET /", b"a" * PIECE)


@planned(known=False, callers=2)
def endless_requests(target: Target) -> None:
    """Sent ahead, with no answer ever read."""
    _stream(target, b"", b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)


@planned(known=False, callers=2)
def noise(target: Target) -> None:
    _stream(target, b"\x16\x03\x01", random.Random(1).randbytes(PIECE))


def _stream(target: Target, head: bytes, unit: bytes) -> None:
    while target.going():
        with suppress(OSError), target.connection() as connection:
            connection.sendall(head)
            while target.going():
                connection.sendall(unit)


def _hold(target: Target, count: int, first: bytes, drip: bytes) -> None:
    """So many connections that say something and then drip; one that is closed is opened again."""
    with ExitStack() as stack:
        held: list[socket.socket | None] = [None] * count
        stack.callback(lambda: [one.close() for one in held if one is not None])
        while target.going():
            for place, connection in enumerate(held):
                if not target.going():
                    break
                held[place] = _dripped(target, connection, first, drip)
            time.sleep(0.2)


def _dripped(target: Target, connection: socket.socket | None, first: bytes, drip: bytes) -> socket.socket | None:
    try:
        if connection is None:
            connection = socket.create_connection((target.host, target.port), timeout=20)
            connection.sendall(first)
            return connection
        connection.setblocking(False)
        with suppress(BlockingIOError):
            if connection.recv(65536) == b"":
                raise ConnectionError
        connection.setblocking(True)
        if drip:
            connection.sendall(drip)
    except OSError:
        if connection is not None:
            connection.close()
        return None
    return connection


@planned(known=False)
def six_hundred_silent(target: Target) -> None:
    _hold(target, 600, b"", b"")


@planned(known=False)
def six_hundred_dripping_heads(target: Target) -> None:
    _hold(target, 600, b"GET /livez HTTP/1.1\r\nX: ", b"a")


@planned(known=False)
def six_hundred_empty_lines(target: Target) -> None:
    _hold(target, 600, b"\r\n", b"\r\n")


@planned(known=True)
def six_hundred_dripping_bodies(target: Target) -> None:
    head = target.head("POST", "/predict", FORM, "Content-Length: 90000000")
    _hold(target, 600, head + _part("images", b"\xff\xd8")[:-2], b"a")


@planned(known=False)
def six_hundred_bodies_of_strangers(target: Target) -> None:
    _hold(target, 600, target.head("POST", "/predict", FORM, "Content-Length: 90000000"), b"a")


@planned(known=True)
def two_hundred_that_do_not_read(target: Target) -> None:
    _hold(target, 200, target.head("GET", "/openapi.json") * 8, b"")


@planned(known=False, callers=4)
def connections_that_come_and_go(target: Target) -> None:
    while target.going():
        with suppress(OSError), target.connection() as connection:
            connection.sendall(b"GET / HT")


# Images


@cache
def _bomb(name: str) -> bytes:
    return bombs.BOMBS[name]()


def _images(target: Target, names: tuple[str, ...]) -> None:
    """As many as a request may hold, of one kind after the other."""
    order = random.Random(threading.get_ident())
    while target.going():
        image = _bomb(order.choice(names))
        count = max(1, min(int(64 * target.scale), int(90 * MEGABYTE * target.scale) // len(image)))
        target.ask("POST", "/predict", FORM, body=_form(*[_part("images", image)] * count))


for _kind in ("jpeg", "png", "webp", "gif", "bmp", "tiff"):
    _names = tuple(name for name in bombs.BOMBS if name.startswith(f"{_kind}_"))
    _attack = partial(_images, names=_names)
    ATTACKS[f"{_kind}_bombs"] = Planned(_attack, known=True, callers=4, bombs=_names)


@planned(known=True, callers=2)
def bombs_whose_callers_leave(target: Target) -> None:
    image = bombs.jpeg_scans(scans=10)
    body = _form(*[_part("images", image)] * 8)
    while target.going():
        target.leave("POST", "/predict", FORM, body=body)
        time.sleep(0.05)  # what is judged is work for nobody, not how many requests a second there are


_SHOTS = ("jpeg_scans", "png_deep", "tiff_float", "gif_flat")


@planned(known=True, callers=2, bombs=_SHOTS)
def bombs_as_shots(target: Target) -> None:
    order, count = random.Random(threading.get_ident()), max(1, int(10 * target.scale))
    while target.going():
        name, image = f"bomb {order.random()}".encode(), _bomb(order.choice(_SHOTS))
        target.ask("POST", "/classes", FORM, body=_form(_part("name", name, None), *[_part("shots", image)] * count))


# Work that is allowed, in numbers


@planned(known=True, callers=8)
def pinned_versions(target: Target) -> None:
    body = _form(_part("images", target_image()))
    numbers = random.Random(threading.get_ident())
    while target.going():
        target.ask("POST", f"/predict?version={numbers.randrange(14)}", FORM, body=body)


@planned(known=True)
def six_hundred_streams(target: Target) -> None:
    _hold(target, 600, target.head("GET", "/sessions/1/events"), b"")


@planned(known=True, callers=8)
def predictions_whose_callers_leave(target: Target) -> None:
    body = _form(*[_part("images", target_image())] * 16)
    while target.going():
        target.leave("POST", "/predict", FORM, body=body)


@planned(known=True, callers=20)
def models_on_backbones_that_do_not_exist(target: Target) -> None:
    while target.going():
        name = f"m{random.randrange(10**9)}"
        target.ask("POST", "/models", JSON, body=f'{{"name":"{name}","backbone":"timm:{name}"}}'.encode())


@planned(known=True, callers=4)
def pages_and_documents(target: Target) -> None:
    while target.going():
        for path in (
            "/classes?limit=500",
            "/versions?limit=500",
            "/metrics",
            "/openapi.json",
            "/classes?cursor=9" * 50,
        ):
            target.ask("GET", path)


def target_image() -> bytes:
    """An honest image: a small one."""
    return bombs.png_flat((64, 64))


def get_ready(name: str) -> None:
    """What takes long to make and is no part of the attack."""
    for bomb in ATTACKS[name].bombs:
        _bomb(bomb)


def carry_out(name: str, target: Target) -> None:
    """With as many callers as it takes."""
    plan = ATTACKS[name]
    threads = [threading.Thread(target=plan.attack, args=(target,), daemon=True) for _ in range(plan.callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, target.until - time.monotonic()) + 60)
