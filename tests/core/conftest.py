"""What the tests of the core share: a small network, seeded images it can tell apart, and one base session."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.backbones import Backbone, build
from core.base_session import BaseConfig, base_session
from core.classifier import Certainty, NearestClassMean
from core.guard import hold_out
from core.incremental_session import IncrementalConfig
from core.losses import Margins
from core.state import LearnerState, with_weights
from core.views import LabelledViews

SIDE = 16  # pixels: half of what the network is made for, at a quarter of the cost
NOISE = 75.0  # hard enough that learning shows: an untrained network is right on two images of three


@dataclass(frozen=True, eq=False)
class World:
    """A network after its base session, and the images that went into it."""

    config: BaseConfig
    training: LabelledViews  # behind the trunk, as all of these
    guard: LabelledViews
    test: LabelledViews
    state: LearnerState
    network: Backbone  # carries the state's weights


@pytest.fixture(scope="session")
def images() -> Callable[..., LabelledViews]:
    """Draws seeded uint8 images (n, views, 3, 16, 16): a class is a coarse colour pattern in much noise."""

    def draw(
        class_ids: Iterable[int], per_class: int, *, views: int = 1, seed: int = 0, noise: float = NOISE
    ) -> LabelledViews:
        ids = list(class_ids)
        generator = torch.Generator().manual_seed(seed)
        patterns = torch.stack([255 * torch.rand(3, 4, 4, generator=_seeded(class_id)) for class_id in ids])
        common = F.interpolate(patterns, size=SIDE, mode="bilinear")[:, None, None]
        own = torch.randn(len(ids), per_class, 1, 3, SIDE // 4, SIDE // 4, generator=generator).repeat_interleave(4, -1)
        grain = torch.randn(len(ids), per_class, views, 3, SIDE, SIDE, generator=generator)
        noisy = common + noise * (own.repeat_interleave(4, -2) + grain)
        return LabelledViews(
            noisy.clamp(0, 255).to(torch.uint8).flatten(0, 1), torch.tensor(ids).repeat_interleave(per_class)
        )

    return draw


@pytest.fixture(scope="session")
def backbone() -> Backbone:
    """ResNet-32 with seeded random weights. Shared, so no test may change it."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return build("resnet32")


@pytest.fixture(scope="session")
def activations(backbone: Backbone, images: Callable[..., LabelledViews]) -> Callable[..., LabelledViews]:
    """Draws the same images as `images` does, behind the trunk."""

    @torch.no_grad()
    def draw(class_ids: Iterable[int], per_class: int, **options: float) -> LabelledViews:
        drawn = images(class_ids, per_class, **options)
        outputs = backbone.trunk(drawn.inputs.flatten(0, 1))
        return LabelledViews(outputs.unflatten(0, drawn.inputs.shape[:2]), drawn.labels)

    return draw


@pytest.fixture(scope="session")
def world(backbone: Backbone, activations: Callable[..., LabelledViews]) -> World:
    """Six base classes, their ids neither from zero nor without gaps, trained for three epochs."""
    class_ids = (3, 4, 7, 11, 12, 19)
    drawn = activations(class_ids, 24, views=2)
    training, guard = (drawn.select(rows) for rows in hold_out(drawn.labels, per_class=2))
    config = BaseConfig(
        epochs=3,
        batch=32,
        learning_rate=0.03,
        head_rate=0.03,
        weight_decay=5e-4,
        scale=16.0,
        smoothing=0.1,
        blend=1.0,
        scope="tail",
        metric="whitened",
        shrink=1.0,
        copies=3,
        seed=0,
    )
    state = base_session(backbone, training, config).state
    test = activations(class_ids, 20, seed=99)
    return World(config, training, guard, test, state, with_weights(backbone, state.weights))


@pytest.fixture(scope="session")
def gentle() -> IncrementalConfig:
    """A session that learns on these images; a thousand times its rate is ruin.

    It only trains: nothing is searched for, and the space stays as it is.
    """
    return IncrementalConfig(
        epochs=4,
        episodes=6,
        batch=32,
        prototypes="learned",
        classes_per_episode=10,
        optimiser="adamw",
        learning_rate=3e-4,
        milestones=(),
        momentum=0.9,
        weight_decay=1e-5,
        fraction=0.1,
        scope="tail",
        loss="cross-entropy-quadruplet",
        margins=Margins(1.0, 0.5),
        sharpness=8.0,
        smoothing=0.1,
        prototype_rate=0.1,
        calibration=True,
        statistics_momentum=0.9,
        drift=True,
        drift_bandwidth=1.0,
        blend=1.0,
        refit=False,
        shrink=10.0,
        search=False,
        prior="span",
        prior_shots=0.0,
        seed=0,
    )


@pytest.fixture(scope="session")
def accuracy() -> Callable[[Backbone, LearnerState, LabelledViews], float]:
    """Share of images whose centre view is nearest to its own class."""

    @torch.no_grad()
    def of(network: Backbone, state: LearnerState, views: LabelledViews) -> float:
        answers = NearestClassMean(state.space, state.bank, Certainty()).nearest(network.tail(views.inputs[:, 0]))
        return sum(a == b for a, b in zip(answers, views.labels.tolist(), strict=True)) / len(views)

    return of


@pytest.fixture(scope="session")
def bits() -> Callable[[nn.Module | LearnerState | Mapping[str, Tensor]], dict[str, object]]:
    """All content of a module, a state or a table of tensors, comparable bit by bit."""

    def of(thing: nn.Module | LearnerState | Mapping[str, Tensor]) -> dict[str, object]:
        if isinstance(thing, LearnerState):
            named = {"backbone": thing.backbone, "metric": thing.space.metric}
            return {**named, "class_ids": thing.bank.class_ids, **of(_tensors(thing))}
        tensors = thing.state_dict() if isinstance(thing, nn.Module) else thing
        return {name: _digest(tensor) for name, tensor in tensors.items()}

    return of


def _seeded(class_id: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + class_id)


def _tensors(state: LearnerState) -> dict[str, Tensor]:
    bank, whitening = state.bank, state.space.whitening
    tensors = {f"weights.{name}": tensor for name, tensor in state.weights.items()}
    tensors |= {name: getattr(bank, name) for name in ("shots", "initial", "copies", "held")}
    for name, statistics in (("statistics", bank.statistics), ("smoothed", bank.smoothed)):
        tensors |= {f"{name}.mean": statistics.mean, f"{name}.factor": statistics.factor}
    if whitening is not None:
        tensors |= {"origin": whitening.origin, "projection": whitening.projection}
    if state.scatter is not None:
        tensors |= {"scatter": state.scatter.factor, "freedom": torch.tensor(state.scatter.freedom)}
    return tensors


def _digest(tensor: Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().numpy().tobytes()
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(raw).hexdigest()[:16]}"
