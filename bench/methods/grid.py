"""The candidates among which `bench tune` chooses for a method: the same number for each, around its defaults."""

from itertools import product

from bench.methods.contract import METHODS, Setup

CANDIDATES = 9
COARSE = (1 / 3, 1.0, 3.0)  # times the default, of each of two knobs
FINE = tuple(3 ** (step / 4 - 1) for step in range(CANDIDATES))  # of a single knob


def candidates(setup: Setup) -> list[tuple[str, ...]]:
    """Settings as `--set` takes them; a method without knobs has one candidate, itself."""
    knobs = METHODS[setup.method].knobs
    factors = (FINE,) if len(knobs) == 1 else (COARSE,) * len(knobs)
    return [
        tuple(f"{knob}={_scaled(setup, knob, factor)}" for knob, factor in zip(knobs, chosen, strict=True))
        for chosen in product(*factors)
    ]


def _scaled(setup: Setup, knob: str, factor: float) -> str:
    group, name = knob.split(".")
    default = getattr(setup.values if group == "rival" else getattr(setup, group), name)
    if isinstance(default, int):
        return str(max(1, round(default * factor)))
    return f"{default * factor:.4g}"
