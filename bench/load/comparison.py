"""One run of the load benchmark: each load on each server in turn, so that the machine's moods hit all alike."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.load import servers
from bench.load.driving import Measured
from bench.load.in_process import InProcess
from bench.load.sample_images import LARGE, SMALL, jpegs
from bench.load.servers import Server
from bench.load.stage import MakeHome, Tell, driven, sentence, taught
from bench.peers.classifier import save_prototypes

CALLERS = (1, 8, 32)
SATURATED = 32  # callers at which throughput is compared
SHARES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9)  # of our throughput, for the plot of latency against load
STEADY = 0.7  # the share at which the tail of the latency is judged
PEERS = ("litserve", "plain")
SMALL_PICTURES, LARGE_PICTURES = 32, 4


@dataclass(frozen=True)
class Length:
    """How long a run takes."""

    seconds: float  # of each load
    warm: float
    rounds: int  # how often that is compared which ratios are asked of; the median counts
    wide: int  # in how many of them everybody is given every load
    settle: float  # seconds of load for LitServe before anything counts; others need a fifth of it
    at_a_rate: float  # seconds of a load at a fixed rate, whose rare long answers have to be seen
    steady: int  # how often at the share that the tail is judged at
    thorough: bool = True  # large pictures too, and plain FastAPI with few callers
    rates: Sequence[float] = SHARES


# In a young LitServe torch gets its memory from the system anew with every batch; after ten to thirty seconds of load
# the C library keeps it, and answers a second are half as many again. What a server does from then on is what counts.
FULL = Length(seconds=4.0, warm=1.0, rounds=9, wide=3, settle=30.0, at_a_rate=10.0, steady=5)
QUICK = Length(
    seconds=2.0, warm=0.3, rounds=3, wide=1, settle=8.0, at_a_rate=4.0, steady=1, thorough=False, rates=(STEADY,)
)


@dataclass
class Findings:
    closed: dict[str, dict[str, list[Measured]]] = field(default_factory=dict)  # server → load → rounds
    rates: dict[str, list[Measured]] = field(default_factory=dict)  # ours at a share of its throughput → rounds
    limit: list[float] = field(default_factory=list)  # pictures a second with no HTTP, in each round
    alone: list[float] = field(default_factory=list)  # milliseconds for one picture with no HTTP
    megabytes: dict[str, float] = field(default_factory=dict)

    def rate(self, server: str, load: str) -> float:
        return median(one.rate for one in self.closed[server][load])

    def p50(self, server: str, load: str) -> float:
        return median(one.p50 for one in self.closed[server][load])

    def wrong(self) -> int:
        rounds = [some for loads in self.closed.values() for some in loads.values()]
        return sum(one.wrong for some in [*rounds, *self.rates.values()] for one in some)

    def ratios(self) -> dict[str, float]:
        """Each of two things measured within the same minute: the machine is faster at one time than at another."""
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
    """The median over the rounds that have both; one that did not answer at all is told of apart."""
    return median(mine / max(other, 1e-9) for mine, other in zip(ours, theirs, strict=False))


def run(backbone: str, classes: int, folder: Path, make_home: MakeHome, length: Length, tell: Tell) -> Findings:
    small = jpegs(SMALL, SMALL_PICTURES)
    large = jpegs(LARGE, LARGE_PICTURES) if length.thorough else []
    file = folder / "prototypes.safetensors"
    prototypes = taught(backbone, [*small, *large], classes)
    save_prototypes(file, prototypes)
    make_home(folder / "home", backbone, prototypes)
    with ExitStack() as stack:
        starting = [
            servers.protoquad(folder / "home", backbone, folder / "protoquad.log"),
            *(servers.peer(name, backbone, file, folder / f"{name}.log") for name in PEERS),
        ]
        with ThreadPoolExecutor() as pool:  # at once: each spends most of its start on one core
            limit = pool.submit(stack.enter_context, InProcess.of(backbone, file, small))
            everybody = list(pool.map(stack.enter_context, starting))
        comparison = _Comparison(everybody, limit.result(), length, tell)
        comparison.settle(small)
        for number in range(length.rounds):
            comparison.compare(small, wide=number < length.wide)
        for server in everybody if large else []:
            comparison.closed(server, "large", large, len(small), 8)
        comparison.rates(small)
        comparison.findings.megabytes = {server.name: round(server.resident_megabytes()) for server in everybody}
    return comparison.findings


@dataclass
class _Comparison:
    """Servers that take turns: while one is measured, the others stand still."""

    everybody: Sequence[Server]  # ours, LitServe, then others
    limit: InProcess
    length: Length
    tell: Tell
    findings: Findings = field(default_factory=Findings)

    def settle(self, pictures: Sequence[bytes]) -> None:
        for server in self.everybody:
            server.pause()
        for server in self.everybody:
            seconds = self.length.settle if server.name == "litserve" else self.length.settle / 5
            with server.awake():
                driven(server, pictures, 0, {"callers": SATURATED, "warm": 0.0, "seconds": seconds})
            self.tell(f"{server.name} has settled")

    def compare(self, pictures: Sequence[bytes], *, wide: bool) -> None:
        """One round; what a ratio is made of is measured within the same seconds."""
        ours, litserve = self.everybody[:2]
        times = {"warm": self.length.warm, "seconds": self.length.seconds}
        self.findings.alone.append(self.limit.measured("milliseconds for one", **times))
        self.tell(f"in process: {self.findings.alone[-1]:.1f} ms for one picture")
        few = self.everybody if self.length.thorough else [ours, litserve]
        for server in few if wide else [ours]:
            self.closed(server, "small", pictures, 0, 1)
        for server in few if wide else []:
            self.closed(server, "small", pictures, 0, 8)
        self.findings.limit.append(self.limit.measured("pictures a second", **times))
        self.tell(f"in process: {self.findings.limit[-1]:.1f} pictures/s")
        for server in self.everybody if wide else [ours, litserve]:  # ours between the two that it is compared with
            self.closed(server, "small", pictures, 0, SATURATED)

    def closed(self, server: Server, kind: str, pictures: Sequence[bytes], first: int, callers: int) -> None:
        load = {"callers": callers, "warm": self.length.warm, "seconds": self.length.seconds}
        with server.awake():
            found = driven(server, pictures, first, load)
        name = f"{kind} {callers}"
        self.findings.closed.setdefault(server.name, {}).setdefault(name, []).append(found)
        self.tell(f"{server.name}, {name} callers: {sentence(found)}")

    def rates(self, pictures: Sequence[bytes]) -> None:
        """Ours at shares of its throughput."""
        for share in self.length.rates:
            for _ in range(self.length.steady if share == STEADY else 1):
                found = self._at(share, pictures)
                self.findings.rates.setdefault(str(share), []).append(found)
                self.tell(f"{self.everybody[0].name}, {share:.0%} of its throughput: {sentence(found)}")

    def _at(self, share: float, pictures: Sequence[bytes]) -> Measured:
        """A share of what it does now: on a machine that has become slower, the same rate would be a larger one."""
        times = {"warm": self.length.warm, "seconds": self.length.seconds}
        ours = self.everybody[0]
        with ours.awake():
            now = driven(ours, pictures, 0, {"callers": SATURATED, **times})
            load = {"rate": share * now.rate, "warm": self.length.warm, "seconds": self.length.at_a_rate}
            return driven(ours, pictures, 0, load)
