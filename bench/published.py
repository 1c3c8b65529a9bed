"""Published results of other methods, from the tables of their papers."""

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Published:
    setting: str
    curves: dict[str, list[float]]  # accuracy after each session
    ends: dict[str, list[float]]  # first session, last session, average: where the paper has no full curve

    def fits(self, sessions: int) -> bool:
        """Whether a run with this number of sessions follows the published protocol."""
        return all(len(curve) == sessions for curve in self.curves.values())


def published(dataset: str) -> Published | None:
    """Published results on a data set, or None."""
    known = json.loads(files("bench").joinpath("published.json").read_text())
    return Published(**known[dataset]) if dataset in known else None
