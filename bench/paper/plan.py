"""Which runs the report is made of: every method on every draw, and the paper's ablations on the standard draw."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.methods import METHODS, Setup
from bench.overrides import override
from core.losses import LOSS_KINDS

OURS = "protoquad"
MARGINS = ((0.5, 1.0), (0.75, 0.9), (0.7, 0.8), (0.8, 0.75), (0.9, 0.6), (1.0, 0.5), (1.0, 0.3), (1.2, 0.2), (1.3, 0.1))
RATES = (0.3, 0.28, 0.25, 0.2, 0.15, 0.1, 0.08, 0.07, 0.05)  # λ; these and the margins are the paper's tables
FRACTIONS = (0.02, 0.05, 0.1, 0.125, 0.14, 0.15, 0.3)
COPIES = (1, 2, 5, 10, 20)  # B

# For each ablation its values, and the settings that make each of them
ABLATIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "loss": {kind: (f"incremental.loss={kind}",) for kind in LOSS_KINDS},
    "margins": {
        f"{one}, {other}": (f"incremental.margins.query={one}", f"incremental.margins.negatives={other}")
        for one, other in ((0.0, 0.0), *MARGINS)
    },
    "lambda": {str(rate): (f"incremental.prototype_rate={rate}",) for rate in RATES},
    "fraction": {str(share): (f"incremental.fraction={share}",) for share in FRACTIONS},
    "bank": {str(copies): (f"base.copies={copies}",) for copies in COPIES},
}


@dataclass(frozen=True)
class Planned:
    """One run; `group` is "methods" or the name of an ablation, `name` the method or the value."""

    group: str
    name: str
    setup: Setup
    draw: int | None

    @property
    def title(self) -> str:
        if self.group == "methods":
            return f"{self.name}, {'standard draw' if self.draw is None else f'draw {self.draw}'}"
        return f"{self.group} {self.name}"


def plan(setups: dict[str, Setup], draws: int, *, ablations: bool) -> list[Planned]:
    """Draw by draw, so that an early look at the cache has all methods; `setups`: of each method by name."""
    numbers: Sequence[int | None] = (None, *range(1, draws))
    runs = [Planned("methods", name, setup, draw) for draw in numbers for name, setup in setups.items()]
    if ablations and OURS in setups:
        for group, values in ABLATIONS.items():
            runs += [Planned(group, name, override(setups[OURS], chosen), None) for name, chosen in values.items()]
    return runs


def chosen_methods(names: str | None) -> list[str]:
    """The methods of a comma-separated list, or all."""
    asked = [name.strip() for name in names.split(",") if name.strip()] if names else list(METHODS)
    strange = [name for name in asked if name not in METHODS]
    if strange:
        raise ValueError(f"there is no method {strange[0]!r}; there are {', '.join(METHODS)}")
    return list(dict.fromkeys(asked))
