"""Rounds: callers work while faults are injected, then everything is healed and the oracle judges.

Who does what, and when, follows from the seed and the round's number alone, so that a failure can be repeated. What
the machine makes of it in between is its own affair.
"""

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.faults.administering import Administrator
from tests.faults.callers import Operation
from tests.faults.faults import Action, Fault
from tests.faults.ledger import Ledger
from tests.faults.oracle import Oracle
from tests.faults.stage import Deployment

CALLERS = 2
# How often, by comparison.
KINDS = {
    "teach": 6,
    "predict": 3,
    "delete": 2,
    "shots": 2,
    "forget": 1,
    "move": 1,
    "merge": 1,
    "resolve": 1,
    "activate": 1,
}
# What one more caller does, each as often as the others.
ADMINISTRATION = (
    *("make_key", "revoke_key", "register", "unregister", "test_webhook"),
    *("make_model", "delete_model", "import", "base"),
    *("rename", "name_sample", "dismiss", "empty_inbox", "cancel"),
)
ADMINISTERED = 7  # operations of this caller in a round: each kind in every second round
FEWEST, MOST = 3, 6  # operations of one caller in a round
PAUSE = 0.6  # seconds between two of them, at most

Played = TypeVar("Played", bound=Deployment)


@dataclass(frozen=True)
class Plan:
    """What one round will be."""

    number: int
    operations: tuple[tuple[tuple[float, Operation], ...], ...]  # of each caller, with the pause before each
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        lines = [f"round {self.number}"]
        lines += [f"  fault: {fault}" for fault in self.faults]
        for caller, steps in enumerate(self.operations, 1):
            lines += [f"  caller {caller}: after {pause:.2f} s {operation}" for pause, operation in steps]
        return "\n".join(lines)


def planned(seed: int, number: int, models: tuple[str, ...], kinds: Mapping[str, tuple[float, float]]) -> Plan:
    """The same plan for the same seed and number."""
    dice = random.Random(f"{seed} {number}")
    operations = tuple(tuple(_steps(dice, models)) for _ in range(CALLERS))
    chosen = {
        kind.split()[-1]: kind for kind in dice.sample(sorted(kinds), dice.choice((1, 2, 2, 3)))
    }  # one of a victim
    faults = tuple(
        Fault(kind, dice.randrange(2), dice.uniform(0, 2), dice.uniform(*kinds[kind])) for kind in chosen.values()
    )
    return Plan(number, (*operations, tuple(_administration(seed, number, models))), faults)


def _steps(dice: random.Random, models: tuple[str, ...]) -> list[tuple[float, Operation]]:
    steps = []
    for _ in range(dice.randint(FEWEST, MOST)):
        (kind,) = dice.choices(list(KINDS), list(KINDS.values()))
        operation = Operation(kind, dice.choice(models), dice.randrange(2), dice.randrange(1000), dice.random() < 0.5)
        steps.append((dice.uniform(0, PAUSE), operation))
    return steps


def _administration(seed: int, number: int, models: tuple[str, ...]) -> list[tuple[float, Operation]]:
    """The next kinds of a row that is shuffled anew whenever all of them have had their turn."""
    first = (number - 1) * ADMINISTERED
    dice = random.Random(f"{seed} {number} administration")
    steps = []
    for place in range(first, first + ADMINISTERED):
        turn, place_in_turn = divmod(place, len(ADMINISTRATION))
        row = random.Random(f"{seed} {turn} turn").sample(ADMINISTRATION, len(ADMINISTRATION))
        operation = Operation(row[place_in_turn], dice.choice(models), dice.randrange(2), dice.randrange(1000))
        steps.append((dice.uniform(0, PAUSE), operation))
    return steps


class Play(Generic[Played]):
    """One run of many rounds on one stage."""

    def __init__(
        self,
        title: str,
        stage: Played,
        seed: int,
        kinds: Mapping[str, tuple[float, float]],
        actions: Callable[[Fault, Played], tuple[Action, Action]],
        models: tuple[str, ...],
        tell: Callable[[str], object],
    ) -> None:
        self.title = title
        self.stage = stage
        self.seed = seed
        self.kinds = kinds
        self.actions = actions
        self.models = models
        self.tell = tell
        self.ledger = Ledger(models)
        self.oracle = Oracle(stage, self.ledger)
        self.injected: Counter[str] = Counter()
        self.rounds = 0
        self._started = time.monotonic()

    def run(self, rounds: int, seconds: float = math.inf) -> bool:
        """Play them until one fails or time is up; answers whether none failed. The report is told either way."""
        self._make_models()
        plan = planned(self.seed, 1, self.models, self.kinds)
        try:
            for number in range(1, rounds + 1):
                plan = planned(self.seed, number, self.models, self.kinds)
                late = time.monotonic() - self._started > seconds
                self._round(plan, last=late or number == rounds)
                if self.ledger.complaints:
                    break
                if late:
                    self.tell(f"{self.title}: time is up after {number} of {rounds} rounds")
                    self._afterwards()
                    break
            else:
                self._afterwards()
        except Exception as error:
            self.ledger.complain(f"{type(error).__name__}: {error}")
        finally:  # also when somebody interrupts it
            self.tell(self.report())
        if self.ledger.complaints:
            self.tell(self._failure(plan))
        return not self.ledger.complaints

    def _make_models(self) -> None:
        for model in self.models[1:]:
            self.stage.replicas[0].client.post("/models", json={"name": model}).raise_for_status()

    def _round(self, plan: Plan, *, last: bool) -> None:
        began = time.monotonic()
        threads = [threading.Thread(target=self._call, args=(steps,)) for steps in plan.operations]
        for thread in threads:
            thread.start()
        self._inject(plan.faults)
        for thread in threads:
            thread.join()
        self.stage.heal()
        healed = time.monotonic()
        self.oracle.judge(thoroughly=last)
        self.rounds += 1
        faults = ", ".join(f"{fault.kind} {fault.victim + 1}" for fault in plan.faults)
        judged = time.monotonic() - healed - self.oracle.waited
        took = f"{healed - began:.1f} s, sessions {self.oracle.waited:.1f} s more, judged in {judged:.1f} s"
        self.tell(f"{self.title}, round {plan.number}: {faults}; {took}")

    def _call(self, steps: tuple[tuple[float, Operation], ...]) -> None:
        caller = Administrator(self.stage, self.ledger)
        try:
            for pause, operation in steps:
                threading.Event().wait(pause)
                caller.perform(operation)
        except Exception as error:  # in a thread, where nobody would hear of it
            self.ledger.complain(f"a caller failed: {type(error).__name__}: {error}")

    def _inject(self, faults: tuple[Fault, ...]) -> None:
        began = time.monotonic()
        timeline: list[tuple[float, Action]] = []
        for fault in faults:
            begin, end = self.actions(fault, self.stage)
            timeline += [(fault.at, begin), (fault.at + fault.seconds, end)]
            self.injected[fault.kind] += 1
        for at, action in sorted(timeline, key=lambda entry: entry[0]):
            threading.Event().wait(max(0.0, began + at - time.monotonic()))
            action()

    def _afterwards(self) -> None:
        """One more class for each model: its session takes along whatever a failed one left behind."""
        caller = Administrator(self.stage, self.ledger)
        for place, model in enumerate(self.models):
            caller.perform(Operation("delete", model, place, 0))
            caller.perform(Operation("teach", model, place, 0, keyed=True))
        self.oracle.judge()
        self.oracle.nothing_waits()

    def report(self) -> str:
        seconds = time.monotonic() - self._started
        verdict = "FAILED" if self.ledger.complaints else "everything held"
        lines = [f"{self.title}: {self.rounds} rounds in {seconds:.0f} s with seed {self.seed}: {verdict}"]
        tables = {
            "operations": self.ledger.operations,
            "faults": self.injected,
            "checks": self.oracle.checks,
            "sessions": self._sessions(),
        }
        for heading, counts in tables.items():
            lines.append(f"  {heading} ({sum(counts.values())})")
            lines += [f"    {number:7d}  {name}" for name, number in sorted(counts.items())]
        return "\n".join(lines)

    def _sessions(self) -> Counter[str]:
        try:
            return self.oracle.sessions()
        except Exception as error:  # of a report on a failure: the database may be what failed
            return Counter({f"cannot be read: {type(error).__name__}": 0})

    def _failure(self, plan: Plan) -> str:
        lines = ["What did not hold:", *(f"  {complaint}" for complaint in self.ledger.complaints), str(plan)]
        for part in self.stage.parts:
            lines.append(f"The last that {part.name} said:")
            lines += [f"  {line}" for line in part.last_lines()]
        lines.append(f"To repeat it: the act '{self.title}' with seed {self.seed}, {plan.number} rounds")
        return "\n".join(lines)
