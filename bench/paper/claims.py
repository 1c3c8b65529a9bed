"""What the paper claims, and whether the results here bear it out. Verdicts follow from the figures alone.

Methods are compared draw by draw: a difference counts only beyond two standard errors (see `leads`). Ablations are run
on the standard draw only: there a difference counts beyond the standard deviation of our method over the draws. What
was not run, and what one draw cannot tell from chance, is not measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bench.methods import METHODS
from bench.paper.figures import Figures, Read, Results, mean, spread
from bench.paper.leads import leads
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


def _decided(results: Results, claim: str, holds: bool, figure: str) -> Claim:
    if len(results.methods.get(OURS, ())) < 2:
        return _unknown(claim, f"{figure}; with one draw a difference cannot be told from chance")
    return Claim(claim, "reproduced" if holds else "not reproduced", figure)


def _unknown(claim: str, why: str) -> Claim:
    return Claim(claim, "not measured", why)


def _missing(claim: str, what: str) -> Claim:
    return _unknown(claim, f"{what} was not run")


def _last(run: Figures) -> float:
    return run.last


def _first_at_the_end(results: Results) -> Claim:
    claim = "the method is better than all others after the last session"
    found = leads(results, _last)
    if not found:
        return _missing(claim, "our method beside others")
    closest = min(found, key=lambda one: one.least)
    ours, theirs = (mean(results.methods[name], _last) for name in (OURS, closest.over))
    figure = f"{OURS} {ours:.2f}, closest {closest.over} {theirs:.2f}: {closest}"
    return _decided(results, claim, closest.least > 0, figure)


def _first_in_every_session(results: Results) -> Claim:
    claim = "the method is first in every session"
    if not leads(results, _last):
        return _missing(claim, "our method beside others")
    count = len(results.methods[OURS][0].accuracy)
    others = [session + 1 for session in range(count) if not _first_in(results, session)]
    figure = f"first in {count - len(others)} of {count} sessions"
    if others:
        figure += f"; not beyond chance in {', '.join(map(str, others))}"
    return _decided(results, claim, not others, figure)


def _first_in(results: Results, session: int) -> bool:
    """Ahead of every other method; most share the base session with ours, so there it is enough not to be behind."""
    found = leads(results, lambda run: run.accuracy[session])
    return all(one.most >= 0 if session == 0 else one.least > 0 for one in found)


def _over_f2m(results: Results, dataset: str) -> Claim:
    claim = "the method is better than F2M after the last session"
    found = [one for one in leads(results, _last) if one.over == "f2m"]
    if not found:
        return _missing(claim, "f2m or our method")
    paper = f"; the paper has {OVER_F2M[dataset]:+.2f}" if dataset in OVER_F2M else ""
    return _decided(results, claim, found[0].least > 0, f"{found[0]}{paper}")


def _little_lost(results: Results) -> Claim:
    claim = "what was learned stays intact: least is lost from the first session to the last"
    found = leads(results, lambda run: -run.drop)
    if not found:
        return _missing(claim, "our method beside others")
    closest = min(found, key=lambda one: one.least)
    ours, theirs = (mean(results.methods[name], lambda run: run.drop) for name in (OURS, closest.over))
    figure = f"PD of {OURS} {ours:.2f}, closest {closest.over} {theirs:.2f}: ahead by {closest}"
    return _decided(results, claim, closest.least > 0, figure)


def _ablated(
    results: Results, claim: str, ahead: float, figure: str, read: Read = _last, *, also: bool = True
) -> Claim:
    """A comparison on the standard draw: it holds if it is ahead beyond the spread, and what else is asked holds."""
    ours = results.methods.get(OURS, ())
    noise = spread(ours, read)
    figure += "; on the standard draw"
    if len(ours) > 1:
        figure += f", where less than {noise:.2f} (standard deviation of {OURS} over the draws) counts as none"
    return _decided(results, claim, ahead > noise and also, figure)


def _quadruplet(results: Results) -> Claim:
    claim = "the quadruplet loss is better than triplet (paper: 57.39 against 44.34) and contrastive (42.13)"
    runs = results.ablations.get("loss", {})
    if not {"prototypical-quadruplet", "triplet", "contrastive"} <= set(runs):
        return _missing(claim, "the ablation of the loss")
    ends = {name: runs[name].last for name in ("prototypical-quadruplet", "triplet", "contrastive")}
    ahead = ends["prototypical-quadruplet"] - max(ends["triplet"], ends["contrastive"])
    return _ablated(results, claim, ahead, ", ".join(f"{name} {value:.2f}" for name, value in ends.items()))


def _margins(results: Results) -> Claim:
    claim = "margins of (1.0, 0.5) are best, and without margins accuracy falls (paper: 57.39 against 33.19 to 52.39)"
    return _best_value(results, "margins", "1.0, 0.5", claim)


def _best_value(results: Results, ablation: str, value: str, claim: str) -> Claim:
    """Whether this value is better than every other."""
    ends = {name: run.last for name, run in results.ablations.get(ablation, {}).items()}
    if value not in ends or len(ends) < 2:
        return _missing(claim, f"the ablation of {ablation}")
    others = {name: end for name, end in ends.items() if name != value}
    best, worst = max(others, key=others.__getitem__), min(others, key=others.__getitem__)
    figure = f"({value}) {ends[value]:.2f}; best other ({best}) {others[best]:.2f}, worst ({worst}) {others[worst]:.2f}"
    return _ablated(results, claim, ends[value] - others[best], figure)


def _bank(results: Results) -> Claim:
    claim = "with a larger bank the backward transfer goes almost to zero"
    runs = results.ablations.get("bank", {})
    if len(runs) < 2:
        return _missing(claim, "the ablation of the bank")
    small, large = (runs[pick(runs, key=int)].backward_transfer for pick in (min, max))
    figure = f"BWT {small:.2f} with the smallest bank, {large:.2f} with the largest"
    nearer = abs(small) - abs(large)
    return _ablated(results, claim, nearer, figure, lambda run: run.backward_transfer, also=abs(large) <= SMALL)


def _memory(results: Results) -> Claim:
    claim = f"with {100 * LESS_MEMORY:.0f} % of its largest memory the method is better than those that keep exemplars"
    keeping = {name: runs[0] for name, runs in results.methods.items() if METHODS[name].keeps in ("exemplars", "nodes")}
    banks, most = results.ablations.get("bank", {}), largest_memory(results)
    if not keeping or not banks:
        return _missing(claim, "a method with exemplars, or the ablation of the bank")
    rival = max(keeping, key=lambda name: keeping[name].last)
    other = f"{rival} {keeping[rival].last:.2f} with {keeping[rival].bytes_per_class / most:.2f}"
    small: Mapping[str, Figures] = {
        name: run for name, run in banks.items() if run.bytes_per_class <= LESS_MEMORY * most
    }
    if not small:
        least = min(run.bytes_per_class for run in banks.values()) / most
        return _unknown(claim, f"no bank of ours is that small: the smallest takes {least:.2f} of the largest; {other}")
    best = max(small, key=lambda name: small[name].last)
    share = small[best].bytes_per_class / most
    figure = f"{small[best].last:.2f} with {share:.2f} of our largest memory (B = {best}); {other}"
    return _ablated(results, claim, small[best].last - keeping[rival].last, figure)


def largest_memory(results: Results) -> int:
    """Bytes per class of the largest of ours: the 1 of the memory comparison."""
    ours = [*results.ablations.get("bank", {}).values(), *results.methods.get(OURS, ())]
    return max((run.bytes_per_class for run in ours), default=1)
