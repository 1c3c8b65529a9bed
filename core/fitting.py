"""Fits space and prototypes to features: the part of a session that needs no gradients.

Some classes have features of their images at hand. Of the others only what a state remembers of them is known: their
prototypes move into the new space, and their scatter takes part in it.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.prototypes import Prior, mean_prototypes, supported
from core.scatter import Scatter, pooled, scatter_of
from core.space import Space, SpaceChange, class_means, power_normalised, whitened
from core.state import LearnerState
from core.views import LabelledViews

CENTRED = 5  # classes: with fewer, their mean says more of them than of what all images share


@dataclass(frozen=True)
class FitConfig:
    shrink: float | None = 1.0  # of the whitening; None: it stays as it is
    allowance: float | None = None  # for classes of few images; None: it stays as it is
    prior: Prior = "span"  # how well-known classes predict a new one
    prior_shots: float = 10.0  # how many images that prediction is worth


def fit(
    remembered: LearnerState, features: LabelledViews, config: FitConfig, scatter: Scatter | None = None
) -> LearnerState:
    """The classes that are remembered and those with features (S, V, M), in a space fitted to all of them.

    `scatter`: `scatter_with` of the same, if it is known already: it is most of the work.
    """
    return with_classes(in_fitted_space(remembered, features, config, scatter), features, config)


def in_fitted_space(
    remembered: LearnerState, features: LabelledViews, config: FitConfig, scatter: Scatter | None = None
) -> LearnerState:
    """The remembered classes, in a space fitted to them and to the features."""
    allowance = remembered.space.allowance if config.allowance is None else config.allowance
    if config.shrink is None:
        return replace(remembered, space=remembered.space.allowing(allowance))
    scatter = scatter_with(remembered, features) if scatter is None else scatter
    space = whitened(scatter, _origin(remembered, features), config.shrink)
    return in_space(replace(remembered, scatter=scatter), space.allowing(allowance))


def scatter_with(remembered: LearnerState, features: LabelledViews) -> Scatter:
    """Of the remembered classes and those with features, pooled."""
    known = () if remembered.scatter is None else (remembered.scatter,)
    return pooled((*known, scatter_of(features.inputs, features.labels)), features.inputs.shape[-1])


def in_space(state: LearnerState, space: Space) -> LearnerState:
    """The same classes in another space of the same features."""
    if space is state.space or not len(state.bank):
        return replace(state, space=space)
    return replace(state, space=space, bank=state.bank.moved(SpaceChange(state.space, space)))


def with_classes(state: LearnerState, features: LabelledViews, config: FitConfig) -> LearnerState:
    """The state with new classes, whose prototypes are the means of their features in its space."""
    prototypes = prototypes_of(state, features, config)
    return replace(state, bank=state.bank.with_classes(features.class_ids, prototypes, features.counts.tolist()))


def prototypes_of(state: LearnerState, features: LabelledViews, config: FitConfig) -> Tensor:
    """Of the classes with features, (C, M), supported by what the state knows."""
    means = mean_prototypes(state.space.embed(features.inputs), features.owners, len(features.class_ids))
    return supported(means, features.counts, state.bank, prior_shots=config.prior_shots, prior=config.prior)


def can_fit(remembered: LearnerState, features: LabelledViews) -> bool:
    """Whether there is a space to fit: two classes, and images that differ within a class."""
    if remembered.space.metric != "whitened" or len(remembered.bank) + len(features.class_ids) < 2:
        return False
    if len(remembered.bank) and remembered.scatter is None and remembered.space.whitening is not None:
        return False  # of an earlier release: what its space was whitened by is not known, so the space stays
    return features.views > 1 or bool((features.counts > 1).any())


def _origin(remembered: LearnerState, features: LabelledViews) -> Tensor:
    """The mean of all classes, power-normalised; with few classes, less than that."""
    bank = remembered.bank
    back = SpaceChange(remembered.space, Space(remembered.space.metric))
    means, _ = class_means(power_normalised(features.inputs), features.labels)
    everything = torch.cat([back.points(bank.prototypes), means])
    return everything.mean(0) * len(everything) / (len(everything) + CENTRED)
