"""What all parts of the oracle share: whom they ask, and where they write what does not hold."""

from collections import Counter

from tests.faults.ledger import Ledger
from tests.faults.stage import Deployment


class Judge:
    """Every check is counted; whatever does not hold is a complaint in the ledger."""

    def __init__(self, stage: Deployment, ledger: Ledger, checks: Counter[str]) -> None:
        self.stage = stage
        self.ledger = ledger
        self.checks = checks

    def _check(self, what: str, holds: bool, complaint: str) -> None:
        self.checks[what] += 1
        if not holds:
            self.ledger.complain(f"{what}: {complaint}")
