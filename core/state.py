"""What a learner knows at one version: weights, space and bank."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor, nn

from core.backbones import Backbone
from core.bank import PrototypeBank
from core.errors import WeightsMismatch
from core.scatter import Scatter
from core.space import Metric, Space
from core.views import Scope, prefix_of, trainable_part

Weights = Mapping[str, Tensor]
UNTAUGHT = Space("whitened")  # of a learner before its first session


@dataclass(frozen=True, eq=False)
class LearnerState:
    """Immutable; a session makes the next one from it.

    `weights` are those that sessions have trained, by their names within the backbone; all others are the backbone's
    own. `scatter` is that of the classes in the bank, as far as it is known; None: it never was.
    """

    backbone: str
    weights: Weights
    space: Space
    bank: PrototypeBank
    scatter: Scatter | None = None

    @classmethod
    def untaught(cls, backbone: Backbone, metric: Metric = UNTAUGHT.metric, copies: int = 5) -> "LearnerState":
        """Version 0: the backbone with its own weights, and no classes."""
        return cls(backbone.name, {}, Space(metric), PrototypeBank.empty(backbone.dim, copies))


def with_weights(backbone: Backbone, weights: Weights) -> Backbone:
    """A copy of the backbone with these weights; the given one does not change."""
    own = backbone.state_dict()
    strange = [name for name in weights if name not in own or own[name].shape != weights[name].shape]
    if strange:
        raise WeightsMismatch(f"these weights are not of {backbone.name}: {strange[0]} is unknown or of another shape")
    copy = deepcopy(backbone)
    copy.load_state_dict({**own, **weights})
    return copy


def weights_of(backbone: Backbone, scope: Scope) -> Weights:
    """Copies of the weights that a session of this scope trains, by their names within the backbone."""
    return weights_of_part(trainable_part(backbone, scope), scope)


def weights_of_part(part: nn.Module, scope: Scope) -> Weights:
    """`weights_of` for the part of a backbone that a session of this scope trains."""
    return {prefix_of(scope) + name: tensor.detach().cpu().clone() for name, tensor in part.state_dict().items()}
