"""A network that might be served: what it makes of the shots is computed once, however often it is asked."""

import pytest
import torch

from core.bank import PrototypeBank
from core.fitting import FitConfig, fit, scatter_with
from core.folds import folds_of, held_out
from core.scatter import Scatter
from core.space import Space
from core.state import LearnerState
from core.trials import SessionImages, Trial
from core.views import LabelledViews

DIM = 8
UNTAUGHT = LearnerState("resnet32", {}, Space("whitened"), PrototypeBank.empty(DIM, 3))
SHRINKS = (10.0, 3.0, 1.0)


def trial_of(shots: LabelledViews) -> Trial:
    return Trial.of(0.0, torch.nn.Identity(), SessionImages(shots), UNTAUGHT)


def draw() -> LabelledViews:
    inputs = torch.rand(15, 2, DIM, generator=torch.Generator().manual_seed(0))
    return LabelledViews(inputs, torch.arange(3).repeat(5))


def test_one_shrinkage_after_another_takes_one_scatter_for_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five turns and the fit to all shots: six, whatever the number of shrinkages."""
    shots, asked = draw(), list[int]()

    def counted(remembered: LearnerState, features: LabelledViews) -> Scatter:
        asked.append(len(features))
        return real(remembered, features)

    real = scatter_with
    monkeypatch.setattr("core.trials.scatter_with", counted)
    trial = trial_of(shots)

    for shrink in SHRINKS:
        trial.held_out(folds_of(shots.labels), FitConfig(shrink=shrink))
        trial.fitted(FitConfig(shrink=shrink))

    assert sorted(asked) == [12, 12, 12, 12, 12, 15]


@pytest.mark.parametrize("shrink", SHRINKS)
def test_what_was_kept_of_another_shrinkage_changes_no_answer(shrink: float) -> None:
    """Distances and prototypes are those of a fit from nothing, bit for bit."""
    shots = draw()
    trial, turns = trial_of(shots), folds_of(shots.labels)
    trial.held_out(turns, FitConfig(shrink=0.1))
    config = FitConfig(shrink=shrink)

    found, state = trial.held_out(turns, config), trial.fitted(config)

    expected = held_out(shots, turns, lambda rows: fit(UNTAUGHT, shots.select(rows), config))
    assert torch.equal(expected.views, found.views)
    assert torch.equal(fit(UNTAUGHT, shots, config).bank.prototypes, state.bank.prototypes)
