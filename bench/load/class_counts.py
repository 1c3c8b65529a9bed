"""Many classes: the cost of a prediction, of loading a version, and of teaching one more class."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.load import servers
from bench.load.bench_home import (
    DATABASE,
    client_of,
    copy_home,
    fill_home,
    make_prototypes,
    teach,
    teach_one_class,
)
from bench.load.in_process import InProcess
from bench.load.measurement import Load, LoadResult, Report, measure
from bench.load.sample_images import SMALL, jpegs, shot
from bench.load.servers import Server
from bench.peers.torch_classifier import save_prototypes

IMAGES = 32  # different ones in the requests
CALLERS = 32
SHOTS = 5


@dataclass(frozen=True)
class Length:
    classes: Sequence[int] = (100, 10_000, 100_000)
    seconds: float = 8.0
    warm: float = 1.0
    rounds: int = 5
    taught_at: int = 10_000  # the number of classes at which teaching is measured
    teachings: int = 20
    loadings: int = 5


@dataclass
class ClassCountResults:
    loads: dict[int, list[LoadResult]] = field(default_factory=dict)  # classes → rounds
    loading: dict[int, list[float]] = field(default_factory=dict)  # classes → seconds to load a version
    teaching: list[float] = field(default_factory=list)  # milliseconds of each POST /classes
    five: float = 0.0  # milliseconds of the network for as many images
    rows: float = 0.0  # added to the database by each teaching
    megabytes: dict[int, float] = field(default_factory=dict)

    def rate(self, classes: int) -> float:
        return median(one.rate for one in self.loads[classes])

    def teaching_p95(self) -> float:
        return sorted(self.teaching)[int(0.95 * len(self.teaching))]

    def wrong(self) -> int:
        return sum(one.wrong for rounds in self.loads.values() for one in rounds)

    def ratios(self) -> dict[str, float]:
        """Throughput as a share of that with the fewest classes, compared within each round."""
        fewest = self.loads[min(self.loads)]
        found = {
            f"throughput {classes}": median(one.rate / few.rate for one, few in zip(rounds, fewest, strict=True))
            for classes, rounds in self.loads.items()
            if rounds is not fewest
        }
        if self.teaching:
            found["teaching"] = self.teaching_p95() / self.five
        return {name: round(value, 3) for name, value in found.items()}


def measure_class_counts(backbone: str, folder: Path, length: Length, report: Report) -> ClassCountResults:
    images = jpegs(SMALL, IMAGES)
    results = ClassCountResults()
    with ExitStack() as stack:
        teach_one_class(folder / "start", backbone)
        running = {
            classes: stack.enter_context(_server(backbone, classes, images, folder / str(classes)))
            for classes in length.classes
        }
        for server in running.values():
            server.pause()
        for _ in range(length.rounds):
            for classes, server in running.items():
                with server.awake():
                    result = measure(server, images, Load(length.seconds, length.warm, callers=CALLERS))
                results.loads.setdefault(classes, []).append(result)
                report(f"{classes} classes: {result}")
        results.megabytes = {classes: round(server.resident_megabytes()) for classes, server in running.items()}
        if length.taught_at in running:
            own = folder / str(length.taught_at)
            with InProcess.start(backbone, own / "prototypes.safetensors", images) as limit:
                results.five = limit.measure("milliseconds for five", warm=length.warm, seconds=length.seconds)
            with running[length.taught_at].awake():
                database = own / "home" / DATABASE
                _measure_teaching(results, running[length.taught_at], database, length.teachings)
            rows = f"{results.rows:.1f} rows added by each"
            report(f"teaching one more: p50 {median(results.teaching):.0f} ms, {rows}")
        for classes, server in running.items():
            with server.awake():
                results.loading[classes] = list(_loading_seconds(server, images[0], length.loadings))
            report(f"loading a version with {classes} classes takes {median(results.loading[classes]):.2f} s")
    return results


def _server(backbone: str, classes: int, images: Sequence[bytes], folder: Path) -> servers.Running:
    folder.mkdir()
    prototypes = make_prototypes(backbone, images, classes)
    save_prototypes(folder / "prototypes.safetensors", prototypes)
    copy_home(folder.with_name("start"), folder / "home")
    fill_home(folder / "home", backbone, prototypes)
    return servers.protoquad(folder / "home", backbone)


def _measure_teaching(results: ClassCountResults, server: Server, database: Path, teachings: int) -> None:
    """Until the answer, after which the class can be predicted."""
    before = _count_rows(database)
    with client_of(server) as client:
        for number in range(teachings):
            shots = [shot(number, place) for place in range(SHOTS)]
            begin = time.perf_counter()
            teach(client, f"taught {number}", shots).raise_for_status()
            results.teaching.append(round(1000 * (time.perf_counter() - begin), 1))
    results.rows = (_count_rows(database) - before) / teachings


def _count_rows(file: Path) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return sum(database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables)


def _loading_seconds(server: Server, image: bytes, loadings: int) -> Iterator[float]:
    """How much longer the first request for an old version takes than the second."""
    with client_of(server) as client:

        def predict(version: int) -> float:
            begin = time.perf_counter()
            files = {"images": ("image.jpg", image, "image/jpeg")}
            client.post("/predict", params={"version": version}, files=files).raise_for_status()
            return time.perf_counter() - begin

        for number in range(loadings):
            shots = [shot(900 + number, place) for place in range(SHOTS)]
            teach(client, f"loading {number}", shots).raise_for_status()
            version = client.get("/models/default").json()["version"] - 1
            yield round(predict(version) - predict(version), 3)
