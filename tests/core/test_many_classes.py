"""A space fitted again with ten thousand classes, in a process of its own whose time and memory are measured."""

import json
import subprocess
import sys

CLASSES = 10_000
SECONDS = 30  # of computing
MEGABYTES = 350  # less than a matrix of all pairs of classes would take
FIT_AGAIN = """
import json, resource, time
import torch
from core.bank import ClassId, PrototypeBank
from core.fitting import FitConfig, fit
from core.scatter import Scatter
from core.space import Space
from core.state import LearnerState
from core.views import LabelledViews

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

DIM, CLASSES = 320, {classes}
generator = torch.Generator().manual_seed(0)
bank = PrototypeBank.empty(DIM, 5)
prototypes = torch.rand(CLASSES, DIM, generator=generator)
bank = bank.with_classes([ClassId(one) for one in range(CLASSES)], prototypes, [5] * CLASSES)
scatter = Scatter(torch.randn(DIM, DIM, generator=generator), 45 * CLASSES)
known = LearnerState("efficientnet_lite0", {{}}, Space("whitened"), bank, scatter)
new = LabelledViews(torch.rand(50, 9, DIM, generator=generator), torch.arange(10).repeat_interleave(5) + CLASSES)
before = peak()
began = time.process_time()
fitted = fit(known, new, FitConfig(shrink=1.0))
print(json.dumps({{
    "seconds": time.process_time() - began,
    "megabytes": peak() - before,
    "classes": len(fitted.bank),
    "moved": float((fitted.bank.prototypes[0] - bank.prototypes[0]).norm()),
}}))
"""


def test_ten_thousand_classes_are_fitted_again_within_bounds() -> None:
    """The bounds are generous: what grows with the square of the classes breaks them on any machine."""
    command = [sys.executable, "-c", FIT_AGAIN.format(classes=CLASSES)]

    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)

    measured = json.loads(ended.stdout)
    assert measured["classes"] == CLASSES + 10
    assert measured["moved"] > 0
    assert measured["seconds"] < SECONDS
    assert measured["megabytes"] < MEGABYTES
