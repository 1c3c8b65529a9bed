"""The parts of the load benchmarks: results are only as good as these."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from PIL import Image

from bench.load.comparison import STEADY, Comparison
from bench.load.in_process import InProcess
from bench.load.load_driver import run_callers, run_rate
from bench.load.measurement import Load, LoadResult
from bench.load.predict_client import PredictClient, PredictRequest, WrongAnswer
from bench.load.sample_images import SMALL, jpeg

REQUESTS = [PredictRequest.make("image", f"image {number}".encode(), number) for number in range(4)]
Answer = Callable[[bytes], tuple[int, dict[str, object]]]


@asynccontextmanager
async def serving(answer: Answer, delay: float = 0.0) -> AsyncIterator[int]:
    """A server that answers with `answer(body)`; yields its port."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def correct(body: bytes) -> tuple[int, dict[str, object]]:
    (number,) = [number for number in range(4) if f"image {number}".encode() in body]
    return 200, {"class_id": number}


def drive(answer: Answer, load: Load, delay: float = 0.0) -> LoadResult:
    async def driven() -> LoadResult:
        async with serving(answer, delay) as port, PredictClient.connect(port, ours=False) as client:
            return await (run_callers if load.rate is None else run_rate)(client, REQUESTS, load)

    return asyncio.run(driven())


def test_every_answer_is_counted_and_timed() -> None:
    """If an answer takes 20 ms, two callers get at most a hundred per second, each after 20 ms."""
    result = drive(correct, Load(0.3, warm=0.05, callers=2), delay=0.02)

    assert result.wrong == 0
    assert result.answers > 0
    assert result.p50 >= 20
    assert result.rate <= 2 / 0.02
    assert result.latencies == tuple(sorted(result.latencies))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _: (200, {"class_id": 99}), "class 99, not"),
        (lambda _: (503, {"detail": 1}), "HTTP 503"),
    ],
)
def test_a_wrong_answer_is_not_an_answer(answer: Answer, error: str) -> None:
    """Another class or another status is counted as wrong, and the first error is kept."""
    result = drive(answer, Load(0.3, warm=0.05, callers=2))

    assert result.answers == 0
    assert result.wrong > 0
    assert result.first_error is not None
    assert error in result.first_error


def test_a_server_that_is_gone_is_counted_as_wrong() -> None:
    """The driver does not fail: the result says how many requests had no answer."""

    async def driven() -> LoadResult:
        async with serving(correct) as port:
            pass
        async with PredictClient.connect(port, ours=False) as client:
            return await run_callers(client, REQUESTS, Load(0.1, warm=0.0, callers=1))

    result = asyncio.run(driven())

    assert result.answers == 0
    assert result.wrong > 0


def test_at_a_fixed_rate_requests_start_whether_or_not_earlier_ones_are_answered() -> None:
    """Latency counts from the planned start, and about as many start as planned."""
    result = drive(correct, Load(1.0, warm=0.1, rate=100), delay=0.05)

    assert result.wrong == 0
    assert 60 < result.answers < 140
    assert result.p50 >= 50


def test_a_load_ends_when_its_file_exists(tmp_path: Path) -> None:
    """Long before its time."""
    stop = tmp_path / "stop"
    stop.touch()

    result = drive(correct, Load(600.0, warm=0.0, callers=2, until=str(stop)))

    assert result.seconds < 60


@pytest.mark.parametrize(
    ("ours", "answer"),
    [
        (True, {"predictions": [{"label": None, "top": [{"class_id": 1}, {"class_id": 8}]}]}),
        (False, {"class_id": 1}),
    ],
)
def test_the_class_is_read_from_both_kinds_of_answer(ours: bool, answer: dict[str, object]) -> None:
    """Protoquad lists candidates, the other servers name one class."""

    async def predict() -> None:
        async with serving(lambda _: (200, answer)) as port, PredictClient.connect(port, ours=ours) as client:
            await client.predict(REQUESTS[1])
            with pytest.raises(WrongAnswer):
                await client.predict(REQUESTS[2])

    asyncio.run(predict())


@pytest.mark.parametrize("size", [SMALL, (400, 300)])
def test_images_have_the_requested_size_and_differ_by_seed(size: tuple[int, int]) -> None:
    """The same seed makes the same image."""
    one = jpeg(size, 1)

    with Image.open(io.BytesIO(one)) as image:
        assert (image.format, image.size) == ("JPEG", size)
    assert one == jpeg(size, 1)
    assert one != jpeg(size, 2)


def test_ratios_are_medians_over_rounds_of_one_run() -> None:
    """Throughput against each server and the limit, latency against one image alone, p99 against p50."""

    def measured(answers: int, p50: float = 1.0, p99: float = 1.0) -> LoadResult:
        return LoadResult(answers, 0, 1.0, (p50, p50, p99, p99), None)

    comparison = Comparison(
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

    assert comparison.ratios() == {"limit": 0.8, "p50": 1.2, "litserve": 2.5, "p99_to_p50": 2.5}


def test_a_limit_that_cannot_be_measured_is_an_error(tmp_path: Path) -> None:
    """Its process ends, here because there are no prototypes; nobody waits for its result."""
    limit = InProcess.start("resnet32", tmp_path / "missing.safetensors", [jpeg(SMALL, 1)])

    with pytest.raises(RuntimeError, match="ended with code 1"), limit:
        pass
