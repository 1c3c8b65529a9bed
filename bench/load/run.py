"""One run of the load benchmark: each load on each server in turn, so that the machine's moods hit all alike."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.load import servers
from bench.load.driving import Measured
from bench.load.pictures import LARGE, SMALL, jpegs
from bench.load.servers import Server
from bench.load.stage import MakeHome, Tell, driven, limit, sentence, taught
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
    rounds: int  # how often servers are compared at saturation; the median counts
    lighter: int  # in how many of them lighter loads are taken too
    large: bool = True
    rates: Sequence[float] = SHARES


FULL = Length(seconds=8.0, warm=1.0, rounds=3, lighter=3)
QUICK = Length(seconds=2.0, warm=0.5, rounds=2, lighter=1, large=False, rates=(STEADY,))


@dataclass
class Findings:
    closed: dict[str, dict[str, list[Measured]]] = field(default_factory=dict)  # server → load → rounds
    rates: dict[str, dict[str, Measured]] = field(default_factory=dict)
    limit: list[dict[str, float]] = field(default_factory=list)
    megabytes: dict[str, float] = field(default_factory=dict)

    def rate(self, server: str, load: str) -> float:
        return median(one.rate for one in self.closed[server][load])

    def p50(self, server: str, load: str) -> float:
        return median(one.p50 for one in self.closed[server][load])

    @property
    def limit_rate(self) -> float:
        return median(one["rate"] for one in self.limit)

    @property
    def limit_milliseconds(self) -> float:
        return median(one["milliseconds"] for one in self.limit)

    def wrong(self) -> int:
        loads = [one for rounds in self.closed.values() for some in rounds.values() for one in some]
        return sum(one.wrong for one in [*loads, *(one for some in self.rates.values() for one in some.values())])

    def ratios(self) -> dict[str, float]:
        """Each of two things measured within the same minute: the machine is faster at one time than at another."""
        ours = [one.rate for one in self.closed["protoquad"][f"small {SATURATED}"]]
        alone = [one.p50 for one in self.closed["protoquad"]["small 1"]]
        found = {
            "limit": _ratio(ours, [one["rate"] for one in self.limit]),
            "p50": _ratio(alone, [one["milliseconds"] for one in self.limit]),
        }
        for name, loads in self.closed.items():
            if name != "protoquad":
                found[name] = _ratio(ours, [one.rate for one in loads[f"small {SATURATED}"]])
        steady = self.rates.get("protoquad", {}).get(str(STEADY))
        if steady:
            found["p99_to_p50"] = steady.p99 / steady.p50
        return {name: round(value, 3) for name, value in found.items()}


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds that have both; one that did not answer at all is told of apart."""
    return median(mine / max(other, 1e-9) for mine, other in zip(ours, theirs, strict=False))


def run(backbone: str, classes: int, folder: Path, make_home: MakeHome, length: Length, tell: Tell) -> Findings:
    small = jpegs(SMALL, SMALL_PICTURES)
    large = jpegs(LARGE, LARGE_PICTURES) if length.large else []
    file = folder / "prototypes.safetensors"
    prototypes = taught(backbone, [*small, *large], classes)
    save_prototypes(file, prototypes)
    make_home(folder / "home", backbone, prototypes)
    findings = Findings()
    with ExitStack() as stack:
        ours = stack.enter_context(servers.protoquad(folder / "home", backbone, folder / "protoquad.log"))
        peers = [stack.enter_context(servers.peer(name, backbone, file, folder / f"{name}.log")) for name in PEERS]
        everybody = [ours, *peers]
        tell(f"{len(everybody)} servers are up")
        for server in everybody:
            server.pause()
        for number in range(length.rounds):
            for load in CALLERS if number < length.lighter else (SATURATED,):
                for server in everybody:
                    _closed(findings, server, f"small {load}", small, 0, load, length, tell)
            findings.limit.append(limit(backbone, file, small, length.seconds))
            tell(f"in-process limit: {findings.limit[-1]['rate']:.1f} pictures/s")
        for server in everybody if large else []:
            _closed(findings, server, "large 8", large, len(small), 8, length, tell)
        _rates(findings, ours, small, length, tell)
        findings.megabytes = {server.name: round(server.resident_megabytes()) for server in everybody}
    return findings


def _closed(
    findings: Findings,
    server: Server,
    load: str,
    pictures: Sequence[bytes],
    first: int,
    callers: int,
    length: Length,
    tell: Tell,
) -> None:
    with server.awake():
        found = driven(server, pictures, first, {"callers": callers, "warm": length.warm, "seconds": length.seconds})
    findings.closed.setdefault(server.name, {}).setdefault(load, []).append(found)
    tell(f"{server.name}, {load} callers: {sentence(found)}")


def _rates(findings: Findings, ours: Server, small: Sequence[bytes], length: Length, tell: Tell) -> None:
    saturation = findings.rate("protoquad", f"small {SATURATED}")
    for share in length.rates:
        load = {"rate": share * saturation, "warm": length.warm, "seconds": 2 * length.seconds}
        with ours.awake():
            found = driven(ours, small, 0, load)
        findings.rates.setdefault(ours.name, {})[str(share)] = found
        tell(f"{ours.name}, {share:.0%} of its throughput: {sentence(found)}")
