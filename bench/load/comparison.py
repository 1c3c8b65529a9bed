"""The service compared with other servers: each load on each of them in turn, so that all see the same machine."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.load import servers
from bench.load.bench_home import make_home, make_prototypes
from bench.load.in_process import InProcess
from bench.load.measurement import Load, LoadResult, Report, measure
from bench.load.sample_images import LARGE, SMALL, jpegs
from bench.load.servers import Server
from bench.peers.torch_classifier import save_prototypes

CALLERS = (1, 8, 32)
SATURATED = 32  # callers at which throughput is compared
SHARES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9)  # of our throughput, for the plot of latency against load
STEADY = 0.7  # the share at which p99 is compared with p50
PEERS = ("litserve", "plain")
SMALL_IMAGES, LARGE_IMAGES = 32, 4


@dataclass(frozen=True)
class Length:
    """How long a run takes."""

    seconds: float  # of each load
    warm: float
    rounds: int  # of the measurements that ratios are made of; the median counts
    wide: int  # rounds in which every server gets every load
    settle: float  # seconds of load for LitServe before anything is measured; other servers get a fifth of it
    at_rate: float  # seconds of a load at a fixed rate: long enough for rare slow answers
    steady: int  # repetitions at the share `STEADY`
    thorough: bool = True  # also large images, and plain FastAPI with few callers
    rates: Sequence[float] = SHARES


# At first torch in LitServe gets its memory from the system anew for every batch. After ten to thirty seconds of load
# the C library keeps it, and throughput is 1.5 times as high. That later speed is measured.
FULL = Length(seconds=4.0, warm=1.0, rounds=9, wide=3, settle=30.0, at_rate=10.0, steady=5)
QUICK = Length(
    seconds=2.0, warm=0.3, rounds=3, wide=1, settle=8.0, at_rate=4.0, steady=1, thorough=False, rates=(STEADY,)
)


@dataclass
class Comparison:
    """The measurements of a run."""

    closed: dict[str, dict[str, list[LoadResult]]] = field(default_factory=dict)  # server → load → rounds
    rates: dict[str, list[LoadResult]] = field(default_factory=dict)  # share of our throughput → rounds
    limit: list[float] = field(default_factory=list)  # images per second without HTTP, by round
    alone: list[float] = field(default_factory=list)  # milliseconds for one image without HTTP, by round
    megabytes: dict[str, float] = field(default_factory=dict)

    def rate(self, server: str, load: str) -> float:
        return median(one.rate for one in self.closed[server][load])

    def p50(self, server: str, load: str) -> float:
        return median(one.p50 for one in self.closed[server][load])

    def wrong(self) -> int:
        rounds = [some for loads in self.closed.values() for some in loads.values()]
        return sum(one.wrong for some in [*rounds, *self.rates.values()] for one in some)

    def ratios(self) -> dict[str, float]:
        """Each of two measurements taken within a minute: the speed of the machine changes over time."""
        ours = [one.rate for one in self.closed["protoquad"][f"small {SATURATED}"]]
        one_caller = [one.p50 for one in self.closed["protoquad"]["small 1"]]
        found = {"limit": _ratio(ours, self.limit), "p50": _ratio(one_caller, self.alone)}
        for name, loads in self.closed.items():
            if name != "protoquad":
                found[name] = _ratio(ours, [one.rate for one in loads[f"small {SATURATED}"]])
        steady = self.rates.get(str(STEADY))
        if steady:
            found["p99_to_p50"] = _ratio([one.p99 for one in steady], [one.p50 for one in steady])
        return {name: round(value, 3) for name, value in found.items()}


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds that have both."""
    return median(mine / max(other, 1e-9) for mine, other in zip(ours, theirs, strict=False))


def compare_servers(backbone: str, classes: int, folder: Path, length: Length, report: Report) -> Comparison:
    small = jpegs(SMALL, SMALL_IMAGES)
    large = jpegs(LARGE, LARGE_IMAGES) if length.thorough else []
    file = folder / "prototypes.safetensors"
    prototypes = make_prototypes(backbone, [*small, *large], classes)
    save_prototypes(file, prototypes)
    make_home(folder / "home", backbone, prototypes)
    with ExitStack() as stack:
        peers = [servers.peer(name, backbone, file) for name in PEERS]
        starting = [servers.protoquad(folder / "home", backbone), *peers]
        with ThreadPoolExecutor() as pool:  # in parallel: each start uses one core most of the time
            limit = pool.submit(stack.enter_context, InProcess.start(backbone, file, small))
            running = list(pool.map(stack.enter_context, starting))
        turns = _Turns(running, limit.result(), length, report)
        turns.settle(small)
        for number in range(length.rounds):
            turns.play_round(small, wide=number < length.wide)
        for server in running if large else []:
            turns.measure_closed(server, "large", large, 8, first_class=len(small) + 1)
        turns.measure_rates(small)
        turns.results.megabytes = {server.name: round(server.resident_megabytes()) for server in running}
    return turns.results


@dataclass
class _Turns:
    """Servers that take turns: while one is measured, the others are paused."""

    running: Sequence[Server]  # ours, LitServe, then others
    limit: InProcess
    length: Length
    report: Report
    results: Comparison = field(default_factory=Comparison)

    def settle(self, images: Sequence[bytes]) -> None:
        for server in self.running:
            server.pause()
        for server in self.running:
            seconds = self.length.settle if server.name == "litserve" else self.length.settle / 5
            with server.awake():
                measure(server, images, Load(seconds, warm=0.0, callers=SATURATED))
            self.report(f"{server.name} has settled")

    def play_round(self, images: Sequence[bytes], *, wide: bool) -> None:
        """The two measurements of a ratio follow each other within seconds."""
        ours, litserve = self.running[:2]
        times = {"warm": self.length.warm, "seconds": self.length.seconds}
        self.results.alone.append(self.limit.measure("milliseconds for one", **times))
        self.report(f"in process: {self.results.alone[-1]:.1f} ms for one image")
        few = self.running if self.length.thorough else [ours, litserve]
        for server in few if wide else [ours]:
            self.measure_closed(server, "small", images, 1)
        for server in few if wide else []:
            self.measure_closed(server, "small", images, 8)
        self.results.limit.append(self.limit.measure("images per second", **times))
        self.report(f"in process: {self.results.limit[-1]:.1f} images/s")
        for server in self.running if wide else [ours, litserve]:  # ours between the two it is compared with
            self.measure_closed(server, "small", images, SATURATED)

    def measure_closed(
        self, server: Server, kind: str, images: Sequence[bytes], callers: int, *, first_class: int = 1
    ) -> None:
        load = Load(self.length.seconds, self.length.warm, callers=callers)
        with server.awake():
            result = measure(server, images, load, first_class=first_class)
        name = f"{kind} {callers}"
        self.results.closed.setdefault(server.name, {}).setdefault(name, []).append(result)
        self.report(f"{server.name}, {name} callers: {result}")

    def measure_rates(self, images: Sequence[bytes]) -> None:
        """Our service at shares of its throughput."""
        for share in self.length.rates:
            for _ in range(self.length.steady if share == STEADY else 1):
                result = self._measure_share(share, images)
                self.results.rates.setdefault(str(share), []).append(result)
                self.report(f"{self.running[0].name}, {share:.0%} of its throughput: {result}")

    def _measure_share(self, share: float, images: Sequence[bytes]) -> LoadResult:
        """A share of the throughput measured just before: the machine may have become slower."""
        ours = self.running[0]
        with ours.awake():
            now = measure(ours, images, Load(self.length.seconds, self.length.warm, callers=SATURATED))
            return measure(ours, images, Load(self.length.at_rate, self.length.warm, rate=share * now.rate))
