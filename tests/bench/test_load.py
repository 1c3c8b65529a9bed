"""The load benchmark's own parts: what it measures is only as good as they are."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from PIL import Image

from bench.load.client import prediction_of_a_peer, prediction_of_ours, question
from bench.load.driving import Measured, closed_loop, fixed_rate
from bench.load.in_process import InProcess
from bench.load.run import STEADY, Findings
from bench.load.sample_images import LARGE, SMALL, jpeg

QUESTIONS = [question("/predict", "image", f"picture {number}".encode(), number) for number in range(4)]
Answer = Callable[[bytes], tuple[int, dict[str, int]]]


@asynccontextmanager
async def serving(answer: Answer, delay: float = 0.0) -> AsyncIterator[int]:
    """A server that answers what `answer` makes of a request's body; the port it listens on."""

    writers: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                (line,) = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
                body = await reader.readexactly(int(line.split(b":")[1]))
                await asyncio.sleep(delay)
                status, content = answer(body)
                text = json.dumps(content).encode()
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def right(body: bytes) -> tuple[int, dict[str, int]]:
    (number,) = [number for number in range(4) if f"picture {number}".encode() in body]
    return 200, {"class_id": number}


def closed(answer: Answer, callers: int = 2, delay: float = 0.0) -> Measured:
    async def drive() -> Measured:
        async with serving(answer, delay) as port:
            return await closed_loop(port, QUESTIONS, prediction_of_a_peer, callers, warm=0.05, seconds=0.3)

    return asyncio.run(drive())


def test_every_answer_is_counted_and_timed() -> None:
    """With an answer every 20 ms two callers get about a hundred a second, each after 20 ms."""
    found = closed(right, delay=0.02)

    assert found.wrong == 0
    assert found.answers > 0
    assert found.p50 >= 20
    assert found.rate <= 2 / 0.02
    assert found.latencies == tuple(sorted(found.latencies))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda _: (200, {"class_id": 99}), "class 99, not"),
        (lambda _: (503, {"detail": 1}), "HTTP/1.1 503"),
    ],
)
def test_a_wrong_answer_is_no_answer(answer: Answer, told: str) -> None:
    """Another class or another status than expected is counted as wrong, and the first is told."""
    found = closed(answer)

    assert found.answers == 0
    assert found.wrong > 0
    assert found.first_error is not None
    assert told in found.first_error


def test_at_a_fixed_rate_callers_come_whether_or_not_they_are_answered() -> None:
    """Waiting counts from when a caller came, and about as many come as asked for."""

    async def drive() -> Measured:
        async with serving(right, delay=0.05) as port:
            return await fixed_rate(port, QUESTIONS, prediction_of_a_peer, 100, warm=0.1, seconds=1.0, seed=1)

    found = asyncio.run(drive())

    assert found.wrong == 0
    assert 60 < found.answers < 140
    assert found.p50 >= 50


def test_the_class_is_read_from_either_kind_of_answer() -> None:
    """Ours lists candidates, a peer's names one."""
    ours = {"predictions": [{"label": None, "top": [{"class_id": 7}, {"class_id": 8}]}]}

    assert prediction_of_ours(ours) == 7
    assert prediction_of_a_peer({"class_id": 9}) == 9


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_pictures_are_real_and_each_its_own(size: tuple[int, int]) -> None:
    """JPEGs of the size that was asked for; the same seed makes the same picture."""
    one = jpeg(size, 1)

    with Image.open(io.BytesIO(one)) as picture:
        assert (picture.format, picture.size) == ("JPEG", size)
    assert one == jpeg(size, 1)
    assert one != jpeg(size, 2)


def test_ratios_are_medians_over_rounds_of_one_run() -> None:
    """Throughput against each peer and the limit, latency against one picture alone, the tail against the middle."""

    def measured(answers: int, p50: float = 1.0, p99: float = 1.0) -> Measured:
        return Measured(answers, 0, 1.0, (p50, p50, p99, p99), None)

    findings = Findings(
        closed={
            "protoquad": {
                "small 32": [measured(90), measured(100), measured(400)],
                "small 1": [measured(1, p50=12), measured(1, p50=12), measured(1, p50=30)],
            },
            "litserve": {"small 32": [measured(40), measured(40), measured(40)]},
        },
        rates={str(STEADY): [measured(1, p50=10, p99=p99) for p99 in (25, 20, 90)]},
        limit=[125.0] * 3,
        alone=[10.0] * 3,
    )

    assert findings.ratios() == {"limit": 0.8, "p50": 1.2, "litserve": 2.5, "p99_to_p50": 2.5}


def test_a_limit_that_cannot_be_measured_is_told(tmp_path: Path) -> None:
    """Its process ends, here for want of prototypes; nobody waits for a number that will not come."""
    limit = InProcess.of("resnet32", tmp_path / "missing.safetensors", [jpeg(SMALL, 1)])

    with pytest.raises(RuntimeError, match="ended with code 1"), limit:
        pass
