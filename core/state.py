"""What a learner knows at one version: weights, space, bank, and how sure it may be."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor

from core.backbones import Backbone
from core.bank import PrototypeBank
from core.classifier import Certainty
from core.errors import WeightsMismatch
from core.space import Metric, Space
from core.views import Scope

Weights = Mapping[str, Tensor]
UNTAUGHT = Space("whitened")  # of a learner that has seen nothing


@dataclass(frozen=True, eq=False)
class LearnerState:
    """Immutable; a session makes the next one from it.

    `weights` are those of the backbone that sessions have trained, by their names within it; all others are the
    backbone's own.
    """

    backbone: str
    weights: Weights
    space: Space
    bank: PrototypeBank
    certainty: Certainty

    @classmethod
    def untaught(cls, backbone: Backbone, metric: Metric = UNTAUGHT.metric, copies: int = 5) -> "LearnerState":
        """Version 0: the pretrained backbone, no classes."""
        return cls(backbone.name, {}, Space(metric), PrototypeBank.empty(backbone.dim, copies), Certainty())


def with_weights(backbone: Backbone, weights: Weights) -> Backbone:
    """A copy of the backbone that carries these weights; the given one is left alone."""
    own = backbone.state_dict()
    strange = [name for name in weights if name not in own or own[name].shape != weights[name].shape]
    if strange:
        raise WeightsMismatch(f"these weights are not of {backbone.name}: {strange[0]} is unknown or of another shape")
    copy = deepcopy(backbone)
    copy.load_state_dict({**own, **weights})
    return copy


def weights_of(backbone: Backbone, scope: Scope) -> Weights:
    """Copies of the weights that a session of this scope trains, by their names within the backbone."""
    return {
        name: tensor.detach().cpu().clone()
        for name, tensor in backbone.state_dict().items()
        if scope == "all" or name.startswith("tail.")
    }
