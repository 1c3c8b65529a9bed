"""Two networks side by side are one backbone, in which both count alike."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from core.backbones import Backbone, build, join
from core.backbones.pair import Reframe, shared_framing, summing_to_one
from core.backbones.resnet import CifarResNet
from core.base_session import BaseConfig, base_session
from core.errors import UnknownBackbone, WeightsMismatch
from core.images import Framing
from core.incremental_session import IncrementalConfig
from core.refinement import refine
from core.snapshot import from_bytes, to_bytes
from core.space import power_normalised
from core.state import LearnerState, weights_of, with_weights
from core.torchvision_ops import make_torchvision_importable
from core.trials import SessionImages
from core.views import LabelledViews

make_torchvision_importable()
import timm  # noqa: E402

NAME = "resnet32+timm:test_vit"  # other sizes, crops and shapes of activations, and one has negative features
CLASSES, SHOTS, VIEWS = 4, 3, 2


def seeded(make: Callable[[], Backbone]) -> Backbone:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return make()


@pytest.fixture(scope="module")
def halves() -> tuple[Backbone, Backbone]:
    first, second = NAME.split("+")
    return seeded(lambda: build(first)), seeded(lambda: build(second))


@pytest.fixture(scope="module")
def pair(halves: tuple[Backbone, Backbone]) -> Backbone:
    return join(*(deepcopy(half) for half in halves))


def images(size: int, count: int = 5) -> Tensor:
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def views(pair: Backbone) -> LabelledViews:
    with torch.no_grad():
        activations = pair.trunk(images(pair.framing.size, CLASSES * SHOTS * VIEWS))
    labels = torch.tensor([5, 9, 11, 40]).repeat_interleave(SHOTS)
    return LabelledViews(activations.unflatten(0, (CLASSES * SHOTS, VIEWS)), labels)


# What it computes


@torch.no_grad()
def test_its_feature_is_both_features_each_with_a_sum_of_one(pair: Backbone, halves: tuple[Backbone, Backbone]) -> None:
    """Each network sees the part of the image that its own framing would show, at its own size."""
    batch, shared = images(pair.framing.size), pair.framing
    expected = []
    for half in halves:
        seen = round(shared.size * half.framing.crop_ratio / shared.crop_ratio)
        left = (shared.size - seen) // 2
        part = batch[:, :, left : left + seen, left : left + seen].float()
        side = half.framing.size
        features = half(F.interpolate(part, (side, side), mode=half.framing.resample, antialias=True))
        expected.append(features / features.abs().sum(1, keepdim=True))

    found = pair(batch)

    assert found.shape == (5, pair.dim) == (5, sum(half.dim for half in halves))
    torch.testing.assert_close(found, torch.cat(expected, dim=1), rtol=1e-3, atol=1e-6)


@torch.no_grad()
def test_its_activation_is_one_row(pair: Backbone, halves: tuple[Backbone, Backbone]) -> None:
    """Whatever the shapes of the two: that is what stores of activations and graphs take."""
    activation = pair.trunk(images(pair.framing.size))

    sizes = [half.trunk(half.framing.blank()).numel() for half in halves]
    assert activation.shape == (5, sum(sizes))


@torch.no_grad()
def test_both_halves_count_alike_in_the_space(pair: Backbone) -> None:
    """After the root each half of an embedding has the same length, however large its features were."""
    louder = deepcopy(pair)
    last = [weight for name, weight in louder.tail.first.named_parameters() if name.endswith("bn2.weight")][-1]
    last.mul_(50)

    for network in (pair, louder):
        embeddings = power_normalised(network(images(pair.framing.size)))
        first, second = embeddings.split([64, 64], dim=1)
        torch.testing.assert_close(first.norm(dim=1), second.norm(dim=1), rtol=1e-3, atol=0)


@pytest.mark.parametrize("value", [0.0, 1e-30])
def test_a_half_without_a_signal_is_zeros_with_a_finite_slope(value: float) -> None:
    """A dead network must not make the other one's features NaN."""
    dead = torch.full((2, 8), value, requires_grad=True)

    scaled = summing_to_one(dead)
    (slope,) = torch.autograd.grad(scaled.sum(), dead)

    assert scaled.abs().max() < 1e-20
    assert torch.isfinite(slope).all()


# How an image is framed


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (Framing(224), Framing(260), Framing(260)),
        (Framing(260), Framing(224), Framing(260)),
        (Framing(224, 0.875), Framing(518, 1.0), Framing(518, 1.0)),
        (Framing(224, 0.875), Framing(224, 1.0), Framing(256, 1.0)),
        (Framing(32, 1.0), Framing(160, 0.95, "bilinear"), Framing(168, 1.0, "bilinear")),
    ],
)
def test_a_shared_image_shows_each_network_at_least_what_its_own_would(
    first: Framing, second: Framing, shared: Framing
) -> None:
    """As wide as the wider crop, and no network gets fewer pixels than its input has."""
    assert shared_framing(first, second) == shared
    for own in (first, second):
        assert round(shared.size * own.crop_ratio / shared.crop_ratio) >= own.size


def test_a_network_that_is_framed_as_the_pair_gets_the_bytes_themselves() -> None:
    """The larger one of two with equal crops pays nothing."""
    pair = build("resnet32+timm:test_convnext")  # of which the second is framed in another way too
    assert [isinstance(frame, Reframe) for frame in (pair.trunk.first_frame, pair.trunk.second_frame)] == [True, True]

    same = join(build("efficientnet_lite0"), build("efficientnet_lite2"))
    assert [isinstance(frame, Reframe) for frame in (same.trunk.first_frame, same.trunk.second_frame)] == [True, False]


def test_scaling_within_the_graph_is_the_scaling_of_torch() -> None:
    """With antialiasing: a fine pattern becomes grey, not another pattern."""
    stripes = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    stripes[..., ::2] = 255
    reframe = Reframe(Framing(64, 1.0), Framing(16, 1.0))

    found = reframe(stripes)

    expected = F.interpolate(stripes.float(), (16, 16), mode="bicubic", antialias=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2)
    assert found.std() < 5


# Learning


def test_weights_say_which_network_they_belong_to(pair: Backbone, halves: tuple[Backbone, Backbone]) -> None:
    """Under the names that each network has for them."""
    expected = {
        f"{part}.{place}.{name}"
        for place, half in zip(("first", "second"), halves, strict=True)
        for part in ("trunk", "tail")
        for name in getattr(half, part).state_dict()
    }

    assert set(pair.state_dict()) == expected
    assert pair.parameter_count == sum(half.parameter_count for half in halves)


def test_an_incremental_session_changes_both_tails_and_nothing_else(pair: Backbone, views: LabelledViews) -> None:
    """And its result survives being written and read, against the backbone's own weights."""
    before = {name: tensor.clone() for name, tensor in pair.state_dict().items()}
    parent = LearnerState.untaught(pair)
    config = IncrementalConfig(epochs=2, episodes=2, learning_rate=1e-2, search=False)

    state = refine(pair, parent, SessionImages(views), config, judge=None).state

    changed = {name for name, tensor in state.weights.items() if not torch.equal(tensor, before[name])}
    assert {name.split(".")[0] for name in state.weights} == {"tail"}
    assert {name.split(".")[1] for name in changed} == {"first", "second"}
    assert all(torch.equal(tensor, before[name]) for name, tensor in pair.state_dict().items())
    own = weights_of(pair, "tail")
    whole = LearnerState(state.backbone, {**own, **state.weights}, state.space, state.bank)
    again = from_bytes(to_bytes(whole, own), own)
    assert again.backbone == NAME
    assert again.weights.keys() == whole.weights.keys()
    assert all(torch.equal(again.weights[name], tensor) for name, tensor in whole.weights.items())


@pytest.mark.parametrize("scope", ["tail", "all"])
def test_a_base_session_trains_it(pair: Backbone, scope: str) -> None:
    """The tails on rows of activations, or the whole on images; the result fits the backbone and is finite."""
    batch = images(pair.framing.size, 8)
    with torch.no_grad():
        inputs = batch if scope == "all" else pair.trunk(batch)
    training = LabelledViews(inputs[:, None], torch.tensor([1, 1, 1, 1, 2, 2, 2, 2]))

    outcome = base_session(pair, training, BaseConfig(epochs=1, batch=4, scope="all" if scope == "all" else "tail"))

    trained = with_weights(pair, outcome.state.weights)
    assert outcome.state.bank.dim == pair.dim
    assert outcome.state.space.whitening is not None
    with torch.no_grad():
        assert torch.isfinite(trained(batch)).all()
    assert not torch.equal(trained(batch[:1]), pair(batch[:1]))


# Names and weights


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet32+abacus", "there is no backbone 'abacus' in 'resnet32+abacus'"),
        ("resnet32+", "there is no backbone '' in"),
        ("+", "there is no backbone '' in"),
        ("resnet32+resnet18+efficientnet_lite0", "joins two different networks"),
        ("resnet32+resnet32", "joins two different networks"),
        (f"timm:{'a' * 98}+timm:{'b' * 98}", "has 207 characters; use at most 200"),
    ],
)
def test_what_is_no_pair_is_refused(name: str, reason: str) -> None:
    """With what is wrong about it."""
    with pytest.raises(UnknownBackbone, match=reason.replace("+", r"\+")):
        build(name)


def test_a_pair_takes_the_weights_of_both() -> None:
    """Named as in their libraries, after `first.` and `second.`; weights of one alone are refused."""
    first, second = CifarResNet(blocks=5).state_dict(), timm.create_model("test_resnet", num_classes=0).state_dict()
    given = {f"first.{name}": tensor for name, tensor in first.items()}
    both = {**given, **{f"second.{name}": tensor for name, tensor in second.items()}}

    built = build("resnet32+timm:test_resnet", both)

    for half, expected in (("first", first), ("second", second)):
        held = [*getattr(built.trunk, half).state_dict().values(), *getattr(built.tail, half).state_dict().values()]
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(held, expected.values(), strict=True))
    assert built.pretrained
    with pytest.raises(WeightsMismatch, match="tensors are missing"):
        build("resnet32+timm:test_resnet", given)


def test_a_pair_is_pretrained_if_both_are(halves: tuple[Backbone, Backbone]) -> None:
    """A network at random would spoil what the other one knows, so a base session trains both whole."""
    first, second = (deepcopy(half) for half in halves)
    found = []
    for known in ((True, True), (True, False), (False, True)):
        first.pretrained, second.pretrained = known
        found.append(join(first, second).pretrained)

    assert found == [True, False, False]


def test_the_shapes_of_a_pair_need_no_memory() -> None:
    """On the meta device there are names and shapes, and no numbers: archives are checked like this."""
    with torch.device("meta"):
        backbone = build(NAME)

    assert all(parameter.is_meta for parameter in backbone.parameters())
    assert backbone.dim == 128
