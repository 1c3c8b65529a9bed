"""A network: the two halves of a backbone compiled with one version's weights, and the space of its embeddings.

Backbone (core, modules) → CompiledBackbone (for this machine) → Network (with the weights of a version).
"""

from dataclasses import dataclass
from typing import Protocol

from core.images import Framing
from core.space import Space
from engine.class_search import ClassSearch
from engine.compiled_module import CompiledModule

NetworkKey = tuple[int, int]  # id of the model, number of the version whose weights these are


@dataclass(frozen=True, eq=False)
class Network:
    key: NetworkKey
    trunk: CompiledModule  # the same for all networks of a backbone, unless a base session trained it
    tail: CompiledModule
    space: Space
    framing: Framing
    dim: int


class Loaded(Protocol):
    """What predicting needs: a network, and the classes to search in."""

    @property
    def network(self) -> Network: ...

    @property
    def classifier(self) -> ClassSearch: ...
