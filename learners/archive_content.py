"""Checks of an archive's weights and images before it is imported.

A backbone that an archive names is built on torch's meta device first: it has shapes but takes no memory, whatever its
size, and nothing is downloaded for it.
"""

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from core import backbones
from core.backbones import Backbone
from core.errors import BackboneError, ImageError, SnapshotError
from core.snapshot import from_bytes
from core.space import Space
from core.state import UNTAUGHT, LearnerState, Weights, weights_of
from engine.pretrained import as_it_comes
from learners.stored_images import views_of
from store.archive_bank_checks import LARGEST_NUMBER
from store.archive_file import Flaw
from store.settings import Settings

TAIL = "tail."
MAX_PARAMETERS = 250_000_000  # of a backbone: a gigabyte, which is also the most that a row can hold
HEADER_BYTES = 2**20  # names and sizes in a set of weights
PROBES = 2  # images that a network is tried on
NEVER_NEGATIVE = "running_var"  # its square root is taken


class ArchiveContent:
    """Checks for one backbone; each method raises a `Flaw`. Implements `store.archive_checks.Content`."""

    def __init__(self, backbone: str, settings: Settings) -> None:
        self.settings = settings
        self.shapes = _shapes_of(backbone)
        self.dim = self.shapes.dim
        own = self.shapes.state_dict().values()
        whitening_and_scatter = 4 * self.dim * (2 * self.dim + 1)
        self.largest_weights = sum(tensor.nbytes for tensor in own) + whitening_and_scatter + HEADER_BYTES

    def image(self, data: bytes) -> None:
        """Decodes it whole, within the limits of an upload: a truncated one would make every session fail."""
        try:
            views_of(data, self.shapes.framing, augmented=0, max_pixels=self.settings.max_pixels)
        except ImageError as error:
            raise Flaw(str(error)) from error

    def base(self, data: bytes | None) -> tuple[Weights, Space]:
        """A base session's weights and space, or those that the backbone comes with."""
        if data is None:
            return self._own, UNTAUGHT
        state = self._state(data, {})
        if state.weights.keys() not in (self._names(TAIL), self._names("")):
            raise Flaw(f"they are not the weights of a base session of {self.shapes.name}")
        self._try(state.weights, state.space)
        return state.weights, state.space

    def refined(self, data: bytes, base: tuple[Weights, Space]) -> None:
        own, space = base
        state = self._state(data, own)
        self._try(state.weights, space if state.space.whitening is None else state.space)

    @cached_property
    def _own(self) -> Weights:
        try:
            return weights_of(as_it_comes(self.shapes.name, self.settings.weights), "tail")
        except BackboneError as error:
            raise Flaw(f"they are a difference from weights that are not available here: {error}") from error

    @cached_property
    def _network(self) -> Backbone:
        """With any weights: the ones to try replace them."""
        return backbones.build(self.shapes.name)

    def _names(self, prefix: str) -> set[str]:
        return {name for name in self.shapes.state_dict() if name.startswith(prefix)}

    def _state(self, data: bytes, base: Weights) -> LearnerState:
        try:
            state = from_bytes(data, base)
        except SnapshotError as error:
            raise Flaw(str(error)) from error
        if (state.backbone, state.bank.dim, len(state.bank)) != (self.shapes.name, self.dim, 0):
            raise Flaw(f"they are not weights of {self.shapes.name} alone")
        expected = self.shapes.state_dict()
        for name, tensor in state.weights.items():
            if name not in expected:
                raise Flaw(f"they name {name[:100]!a}, which {self.shapes.name} does not have")
            _require_like(tensor, expected[name], name)
        if state.space.whitening is not None:
            _require_usable(state.space.whitening.origin, "the centre of its space")
            _require_usable(state.space.whitening.projection, "the projection of its space")
        if state.scatter is not None:
            _require_usable(state.scatter.factor, "the scatter of its classes")
        return state

    @torch.inference_mode()
    def _try(self, weights: Weights, space: Space) -> None:
        """Run the network on noise: its features must be finite."""
        generator = torch.Generator().manual_seed(0)
        whole = weights.keys() == self._names("")
        if whole:
            size = self.shapes.framing.size
            images = torch.randint(0, 256, (PROBES, 3, size, size), generator=generator, dtype=torch.uint8)
            features = _answer(self._network, weights, images)
        else:
            own = {name.removeprefix(TAIL): tensor for name, tensor in weights.items()}
            activations = torch.rand(PROBES, *self._activation, generator=generator)
            features = _answer(self._network.tail, own, activations)
        if not torch.isfinite(space.comparable(space.embed(features))).all():
            raise Flaw("a network with them computes numbers that are not finite")

    @cached_property
    def _activation(self) -> tuple[int, ...]:
        """Shape of the trunk's activation of an image."""
        with torch.no_grad(), torch.device("meta"):
            activation: Tensor = self.shapes.trunk(self.shapes.framing.blank())
        return tuple(activation.shape[1:])


def _shapes_of(name: str) -> Backbone:
    """The backbone without its weights."""
    try:
        with torch.device("meta"):
            built = backbones.build(name)
    except BackboneError as error:
        raise Flaw(str(error)) from error
    except Exception as error:  # some of timm's models cannot be built like this
        raise Flaw(f"its backbone {name[:100]!a} cannot be built here ({type(error).__name__})") from error
    if built.parameter_count > MAX_PARAMETERS:
        raise Flaw(f"its backbone {name} has {built.parameter_count} parameters, of {MAX_PARAMETERS} at most")
    return built


def _answer(network: nn.Module, weights: Weights, inputs: Tensor) -> Tensor:
    features: Tensor = functional_call(network, dict(weights), (inputs,))
    if not torch.isfinite(features).all():
        raise Flaw("a network with them computes numbers that are not finite")
    return features


def _require_like(tensor: Tensor, expected: Tensor, name: str) -> None:
    if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
        raise Flaw(
            f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not {expected.dtype} of {tuple(expected.shape)}"
        )
    if tensor.is_floating_point():
        _require_usable(tensor, name)
    if name.endswith(NEVER_NEGATIVE) and (tensor < 0).any():
        raise Flaw(f"{name} is below 0")


def _require_usable(tensor: Tensor, name: str) -> None:
    if not (tensor.abs() <= LARGEST_NUMBER).all():  # NaN fails this too
        raise Flaw(f"{name} has numbers that are not finite, or too large")
