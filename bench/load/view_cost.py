"""What several views of an image cost: one service, asked for one view and for more in turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bench.load import servers
from bench.load.bench_home import make_home, make_prototypes
from bench.load.measurement import Load, LoadResult, Report, measure
from bench.load.sample_images import SMALL, jpegs

CLASSES, IMAGES = 100, 32
CALLERS = (1, 32)


@dataclass(frozen=True)
class Length:
    views: Sequence[int] = (1, 2, 3, 6)
    seconds: float = 4.0
    warm: float = 0.5  # for each view: until many callers have their first answers
    rounds: int = 7


@dataclass
class ViewCost:
    loads: dict[int, dict[int, list[LoadResult]]] = field(default_factory=dict)  # callers → views → rounds

    def ratios(self) -> dict[str, float]:
        """To one view in the same round: answers a second of many callers, p50 of one."""
        alone, many = (self.loads[callers] for callers in CALLERS)
        found = {}
        for views in [views for views in many if views != 1]:
            pairs = zip(many[views], many[1], strict=True)
            found[f"throughput, {views} views"] = median(own.rate / one.rate for own, one in pairs)
            pairs = zip(alone[views], alone[1], strict=True)
            found[f"p50 of one caller, {views} views"] = median(own.p50 / one.p50 for own, one in pairs)
        return {name: round(value, 3) for name, value in found.items()}

    def wrong(self) -> int:
        return sum(one.wrong for views in self.loads.values() for rounds in views.values() for one in rounds)


def measure_view_cost(backbone: str, folder: Path, length: Length, report: Report) -> ViewCost:
    images = jpegs(SMALL, IMAGES)
    make_home(folder / "home", backbone, make_prototypes(backbone, images, CLASSES))
    found = ViewCost({callers: {views: [] for views in length.views} for callers in CALLERS})
    with servers.protoquad(folder / "home", backbone) as server:
        for number in range(length.rounds):
            for callers in CALLERS:
                for views in length.views if number % 2 == 0 else reversed(length.views):
                    asked = replace(server, path=f"/predict?views={views}")
                    load = Load(length.seconds, views * length.warm, callers=callers)
                    result = measure(asked, images, load, first_class=None)  # another look may be another answer
                    found.loads[callers][views].append(result)
                    report(f"{callers} callers, {views} views: {result}")
    return found
