"""Many classes: what they cost a prediction, how long a version takes to load, and what teaching one more costs."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx

from bench.load import servers
from bench.load.driving import Measured
from bench.load.in_process import InProcess
from bench.load.sample_images import SMALL, jpegs, shot
from bench.load.servers import Server
from bench.load.stage import MakeHome, Tell, driven, sentence, taught
from bench.peers.classifier import save_prototypes

PICTURES = 32  # that callers ask about
CALLERS = 32
SHOTS = 5
TEACHINGS = 20
LOADINGS = 5


@dataclass(frozen=True)
class Length:
    classes: Sequence[int] = (100, 10_000, 100_000)
    seconds: float = 8.0
    warm: float = 1.0
    rounds: int = 5
    taught_at: int = 10_000  # how many classes there are when more are taught


@dataclass
class Scaled:
    loads: dict[int, list[Measured]] = field(default_factory=dict)  # classes → rounds
    loading: dict[int, list[float]] = field(default_factory=dict)  # seconds to load a version with so many
    teaching: list[float] = field(default_factory=list)  # milliseconds of each POST /classes
    five: float = 0.0  # milliseconds of the engine for as many pictures
    rows: float = 0.0  # added to the database by each teaching
    megabytes: dict[int, float] = field(default_factory=dict)

    def rate(self, classes: int) -> float:
        return median(one.rate for one in self.loads[classes])

    def wrong(self) -> int:
        return sum(one.wrong for rounds in self.loads.values() for one in rounds)

    def ratios(self) -> dict[str, float]:
        """Throughput as a share of that with the fewest classes, each round compared with itself: machines drift."""
        fewest = self.loads[min(self.loads)]
        found = {
            f"throughput {n}": median(one.rate / few.rate for one, few in zip(rounds, fewest, strict=True))
            for n, rounds in self.loads.items()
            if rounds is not fewest
        }
        if self.teaching:
            found["teaching"] = sorted(self.teaching)[int(0.95 * len(self.teaching))] / self.five
        return {name: round(value, 3) for name, value in found.items()}


def run_scale(backbone: str, folder: Path, make_home: MakeHome, length: Length, tell: Tell) -> Scaled:
    pictures = jpegs(SMALL, PICTURES)
    found = Scaled()
    with ExitStack() as stack:
        running: dict[int, Server] = {}
        for count in length.classes:
            own = folder / str(count)
            own.mkdir()
            prototypes = taught(backbone, pictures, count)
            save_prototypes(own / "prototypes.safetensors", prototypes)
            make_home(own / "home", backbone, prototypes)
            running[count] = stack.enter_context(servers.protoquad(own / "home", backbone, own / "protoquad.log"))
            running[count].pause()  # the others', too, are measured with the machine to themselves
            tell(f"a server with {count} classes is up")
        for _ in range(length.rounds):
            for count, server in running.items():
                load = {"callers": CALLERS, "warm": length.warm, "seconds": length.seconds}
                with server.awake():
                    found.loads.setdefault(count, []).append(driven(server, pictures, 0, load))
                tell(f"{count} classes: {sentence(found.loads[count][-1])}")
        found.megabytes = {count: round(server.resident_megabytes()) for count, server in running.items()}
        if length.taught_at in running:
            file = folder / str(length.taught_at) / "prototypes.safetensors"
            with InProcess.of(backbone, file, pictures) as alone:
                found.five = alone.measured("milliseconds for five", warm=length.warm, seconds=length.seconds)
            with running[length.taught_at].awake():
                _teach(found, running[length.taught_at], folder / str(length.taught_at) / "home" / "protoquad.db", tell)
        for count, server in running.items():
            with server.awake():
                found.loading[count] = list(_loadings(server, pictures[0]))
            tell(f"a version with {count} classes is loaded in {median(found.loading[count]):.2f} s")
    return found


def _teach(found: Scaled, server: Server, database: Path, tell: Tell) -> None:
    """To the answer, after which the class is servable."""
    before = _rows(database)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=120) as client:
        for number in range(TEACHINGS):
            files = [("shots", (f"{place}.jpg", shot(number, place), "image/jpeg")) for place in range(SHOTS)]
            begin = time.perf_counter()
            client.post("/classes", data={"name": f"taught {number}"}, files=files).raise_for_status()
            found.teaching.append(round(1000 * (time.perf_counter() - begin), 1))
    found.rows = (_rows(database) - before) / TEACHINGS
    tell(f"teaching one more: p50 {median(found.teaching):.0f} ms, {found.rows:.1f} rows added by each")


def _rows(file: Path) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return sum(database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables)


def _loadings(server: Server, picture: bytes) -> Iterator[float]:
    """Seconds by which asking an old version for the first time takes longer than asking it again."""
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=300) as client:

        def ask(version: int) -> float:
            begin = time.perf_counter()
            files = {"images": ("picture.jpg", picture, "image/jpeg")}
            client.post("/predict", params={"version": version}, files=files).raise_for_status()
            return time.perf_counter() - begin

        for number in range(LOADINGS):
            files = [("shots", (f"{place}.jpg", shot(900 + number, place), "image/jpeg")) for place in range(SHOTS)]
            client.post("/classes", data={"name": f"loading {number}"}, files=files).raise_for_status()
            version = client.get("/models/default").json()["version"] - 1
            yield round(ask(version) - ask(version), 3)
