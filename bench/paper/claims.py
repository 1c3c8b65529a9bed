"""What the paper claims, and whether the results here bear it out. Verdicts follow from the figures alone.

A difference counts only if it is larger than the standard deviation of our own result over the draws: a smaller one may
be chance. A claim about runs that were not made is not measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bench.methods import METHODS
from bench.paper.figures import Figures, Results, mean, mean_curve, spread
from bench.paper.plan import OURS

Verdict = Literal["reproduced", "not reproduced", "not measured"]
OVER_F2M = {"cub200": 3.13, "cifar100": 2.5, "miniimagenet": 1.01}  # points, in the paper
LESS_MEMORY = 0.62  # of the largest of ours: what the paper needs to be better than others
SMALL = 1.0  # points of BWT that are "almost zero"


@dataclass(frozen=True)
class Claim:
    claim: str
    verdict: Verdict
    figure: str


def claims_of(results: Results, dataset: str) -> list[Claim]:
    return [
        _first_at_the_end(results),
        _first_in_every_session(results),
        _over_f2m(results, dataset),
        _little_lost(results),
        _quadruplet(results),
        _margins(results),
        _best_value(results, "lambda", "0.1", "λ = 0.1 is best for the update of old prototypes"),
        _best_value(results, "fraction", "0.1", "training 10 % of the parameters is best; more deform old clusters"),
        _bank(results),
        _memory(results),
    ]


def _decided(claim: str, holds: bool, figure: str) -> Claim:
    return Claim(claim, "reproduced" if holds else "not reproduced", figure)


def _missing(claim: str, what: str) -> Claim:
    return Claim(claim, "not measured", f"{what} was not run")


def _noise(results: Results) -> float:
    return spread(results.methods.get(OURS, ()), lambda run: run.last)


def _certainty(results: Results) -> str:
    draws = len(results.methods[OURS])
    return f"± {_noise(results):.2f} over {draws} draws" if draws > 1 else "one draw: chance is not told from gain"


def _ends(results: Results) -> dict[str, float]:
    return {name: mean(runs, lambda run: run.last) for name, runs in results.methods.items()}


def _first_at_the_end(results: Results) -> Claim:
    claim = "the method is better than all others after the last session"
    ends = _ends(results)
    others = {name: value for name, value in ends.items() if name != OURS}
    if OURS not in ends or not others:
        return _missing(claim, "our method beside others")
    best = max(others, key=others.__getitem__)
    ahead, noise = ends[OURS] - others[best], _noise(results)
    figure = f"{OURS} {ends[OURS]:.2f}, {best} {others[best]:.2f}: {ahead:+.2f} points ({_certainty(results)})"
    return _decided(claim, ahead > noise, figure)


def _first_in_every_session(results: Results) -> Claim:
    claim = "the method is first in every session"
    if OURS not in results.methods or len(results.methods) < 2:
        return _missing(claim, "our method beside others")
    curves = {name: mean_curve(runs) for name, runs in results.methods.items()}
    count = len(curves[OURS])
    behind = [t + 1 for t in range(count) if any(curve[t] > curves[OURS][t] for curve in curves.values())]
    figure = f"first in {count - len(behind)} of {count} sessions"
    return _decided(
        claim, not behind, figure + (f"; another is ahead in {', '.join(map(str, behind))}" if behind else "")
    )


def _over_f2m(results: Results, dataset: str) -> Claim:
    claim = "the method is better than F2M after the last session"
    if dataset in OVER_F2M:
        claim += f", by {OVER_F2M[dataset]} points"
    ends = _ends(results)
    if not {OURS, "f2m"} <= set(ends):
        return _missing(claim, "f2m or our method")
    ahead = ends[OURS] - ends["f2m"]
    return _decided(claim, ahead > _noise(results), f"{ahead:+.2f} points ({_certainty(results)})")


def _little_lost(results: Results) -> Claim:
    claim = "what was learned stays intact: least is lost from the first session to the last"
    drops = {name: mean(runs, lambda run: run.drop) for name, runs in results.methods.items()}
    if OURS not in drops or len(drops) < 2:
        return _missing(claim, "our method beside others")
    least = min(drops, key=drops.__getitem__)
    figure = f"PD of {OURS} {drops[OURS]:.2f}, least {drops[least]:.2f} ({least})"
    return _decided(claim, least == OURS, figure)


def _quadruplet(results: Results) -> Claim:
    claim = "the quadruplet loss is better than triplet (paper: 57.39 against 44.34) and contrastive (42.13)"
    runs = results.ablations.get("loss", {})
    if not {"prototypical-quadruplet", "triplet", "contrastive"} <= set(runs):
        return _missing(claim, "the ablation of the loss")
    ends = {name: runs[name].last for name in ("prototypical-quadruplet", "triplet", "contrastive")}
    ahead = ends["prototypical-quadruplet"] - max(ends["triplet"], ends["contrastive"])
    return _decided(claim, ahead > _noise(results), ", ".join(f"{name} {value:.2f}" for name, value in ends.items()))


def _margins(results: Results) -> Claim:
    claim = "margins of (1.0, 0.5) are best, and without margins accuracy falls (paper: 57.39 against 33.19 to 52.39)"
    return _best_value(results, "margins", "1.0, 0.5", claim)


def _best_value(results: Results, ablation: str, value: str, claim: str) -> Claim:
    """Whether this value is better than every other, beyond the spread over draws."""
    ends = {name: run.last for name, run in results.ablations.get(ablation, {}).items()}
    if value not in ends or len(ends) < 2:
        return _missing(claim, f"the ablation of {ablation}")
    others = {name: end for name, end in ends.items() if name != value}
    best, worst = max(others, key=others.__getitem__), min(others, key=others.__getitem__)
    ahead = ends[value] - others[best]
    figure = f"({value}) {ends[value]:.2f}; best other ({best}) {others[best]:.2f}, worst ({worst}) {others[worst]:.2f}"
    return _decided(claim, ahead > _noise(results), figure)


def _bank(results: Results) -> Claim:
    claim = "with a larger bank the backward transfer goes almost to zero"
    runs = results.ablations.get("bank", {})
    if len(runs) < 2:
        return _missing(claim, "the ablation of the bank")
    small, large = (runs[pick(runs, key=int)] for pick in (min, max))
    figure = f"BWT {small.backward_transfer:.2f} with the smallest bank, {large.backward_transfer:.2f} with the largest"
    better = abs(large.backward_transfer) < abs(small.backward_transfer)
    return _decided(claim, better and abs(large.backward_transfer) <= SMALL, figure)


def _memory(results: Results) -> Claim:
    claim = f"with {100 * LESS_MEMORY:.0f} % of its largest memory the method is better than those that keep exemplars"
    keeping = {name: runs for name, runs in results.methods.items() if METHODS[name].keeps == "exemplars"}
    most = largest_memory(results)
    small: Mapping[str, Figures] = {
        name: run
        for name, run in results.ablations.get("bank", {}).items()
        if run.bytes_per_class <= LESS_MEMORY * most
    }
    if not keeping or not results.ablations.get("bank"):
        return _missing(claim, "a method with exemplars, or the ablation of the bank")
    rival = max(keeping, key=lambda name: mean(keeping[name], lambda run: run.last))
    theirs = mean(keeping[rival], lambda run: run.last)
    other = f"{rival} {theirs:.2f} with {keeping[rival][0].bytes_per_class / most:.2f}"
    if not small:
        return _decided(claim, False, f"no bank of ours is that small; {other} of our largest memory")
    best = max(small, key=lambda name: small[name].last)
    share = small[best].bytes_per_class / most
    figure = f"{small[best].last:.2f} with {share:.2f} of our largest memory (B = {best}); {other}"
    return _decided(claim, small[best].last - theirs > _noise(results), figure)


def largest_memory(results: Results) -> int:
    """Bytes per class of the largest of ours: the 1 of the memory comparison."""
    ours = [*results.ablations.get("bank", {}).values(), *results.methods.get(OURS, ())]
    return max((run.bytes_per_class for run in ours), default=1)
