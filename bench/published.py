"""Results that others have published, to stand beside ours. Numbers from the papers' own tables."""

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Published:
    setting: str
    curves: dict[str, list[float]]  # accuracy after each session
    ends: dict[str, list[float]]  # first session, last session, average: where no whole curve was printed

    def fits(self, sessions: int) -> bool:
        """Whether a run of so many sessions is of the protocol that was published."""
        return all(len(curve) == sessions for curve in self.curves.values())


def published(dataset: str) -> Published | None:
    """What was published on a data set; None where nothing is known."""
    known = json.loads(files("bench").joinpath("published.json").read_text())
    return Published(**known[dataset]) if dataset in known else None
