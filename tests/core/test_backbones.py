"""Every backbone keeps the same contract, and takes the tensors that it is given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.backbones import NAMES, Backbone, build
from core.backbones.resnet import CifarResNet
from core.backbones.weights import load_by_name
from core.errors import UnknownBackbone, WeightsMismatch
from core.torchvision_ops import make_torchvision_importable

HALF, IMAGENET = ((0.5,) * 3, (0.5,) * 3), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762))
CUT = (
    "efficientnet_lite0",
    "efficientnet_lite1",
    "efficientnet_lite2",
    "resnet18",
    "resnet32",
    "timm:test_resnet",
    "timm:test_efficientnet",
    "timm:test_convnext",
    "timm:test_vit",  # pools the class token
    "timm:test_vit2",  # has register tokens
    "timm:test_vit3",  # pools by attention
    "timm:deit_tiny_distilled_patch16_224",  # two heads
)
ALL_TAIL = ("timm:mobilenetv3_small_050",)
Network = Callable[[Tensor], Tensor]


def from_timm(name: str, **options: Any) -> Any:
    make_torchvision_importable()
    import timm  # here: it takes seconds, which collecting the tests need not

    return timm.create_model(name, **options)


def from_torchvision(**options: Any) -> Any:
    make_torchvision_importable()
    import torchvision

    return torchvision.models.resnet18(**options)


@dataclass(frozen=True, eq=False)
class Case:
    """A backbone, images for it, and the network that it was cut from, made without its help."""

    backbone: Backbone
    images: Tensor
    embeddings: Tensor
    original: Network  # bytes as floats in 0..1 → pooled features
    parameters: int  # of the original, without a classifier


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return make().eval()


def normalised(network: Network, statistics: tuple[tuple[float, ...], tuple[float, ...]]) -> Network:
    mean, std = (torch.tensor(values)[:, None, None] for values in statistics)
    return lambda images: network((images - mean) / std)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def original_lite(name: str) -> tuple[Network, int]:
    model = seeded(lambda: from_timm(f"tf_{name}", pretrained=False))
    features = normalised(lambda x: model.global_pool(model.forward_features(x)), HALF)
    return features, count(model) - count(model.classifier)


def original_resnet18() -> tuple[Network, int]:
    model = seeded(lambda: from_torchvision(weights=None))
    model.fc = nn.Identity()
    return normalised(model, IMAGENET), count(model)


def original_timm(name: str) -> tuple[Network, int]:
    model = seeded(lambda: from_timm(name, pretrained=False, num_classes=0))
    return normalised(model, (model.default_cfg["mean"], model.default_cfg["std"])), count(model)


def original_resnet32() -> tuple[Network, int]:
    """He et al. 2016 written as they describe it, on the tensors of ours."""
    network = seeded(lambda: CifarResNet(blocks=5))
    weights = network.state_dict()

    def norm(x: Tensor, layer: str) -> Tensor:
        statistics = (weights[f"{layer}.running_mean"], weights[f"{layer}.running_var"])
        return F.batch_norm(x, *statistics, weights[f"{layer}.weight"], weights[f"{layer}.bias"])

    def forward(x: Tensor) -> Tensor:
        x = F.relu(norm(F.conv2d(x, weights["stem.0.weight"], padding=1), "stem.1"))
        for stage in (1, 2, 3):
            for block in range(5):
                layer, halve = f"stage{stage}.{block}", stage > 1 and block == 0
                inner = F.conv2d(x, weights[f"{layer}.conv1.weight"], stride=2 if halve else 1, padding=1)
                inner = F.conv2d(F.relu(norm(inner, f"{layer}.bn1")), weights[f"{layer}.conv2.weight"], padding=1)
                if halve:
                    x = F.pad(F.avg_pool2d(x, 1, stride=2), [0, 0, 0, 0, x.shape[1] // 2, x.shape[1] // 2])
                x = F.relu(x + norm(inner, f"{layer}.bn2"))
        return x.mean((2, 3))

    return normalised(forward, CIFAR), count(network)


def original(name: str) -> tuple[Network, int]:
    if name.startswith("timm:"):
        return original_timm(name.removeprefix("timm:"))
    if name.startswith("efficientnet"):
        return original_lite(name)
    return original_resnet18() if name == "resnet18" else original_resnet32()


@pytest.fixture(scope="module", params=CUT + ALL_TAIL)
def case(request: pytest.FixtureRequest) -> Case:
    name = request.param
    backbone = seeded(lambda: build(name))
    assert isinstance(backbone, Backbone)
    side = backbone.framing.size
    images = torch.randint(0, 256, (3, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return Case(backbone, images, backbone(images), *original(name))


@torch.no_grad()
def test_the_cut_network_computes_what_the_uncut_one_does(case: Case) -> None:
    """tail ∘ trunk gives the pooled features of the network as its authors wrote it."""
    expected = case.original(case.images.float() / 255)

    actual = case.backbone.tail(case.backbone.trunk(case.images))

    assert torch.equal(actual, case.embeddings)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def test_bytes_become_one_embedding_for_each_image(case: Case) -> None:
    """uint8 images give (b, dim) finite numbers that tell the images apart."""
    embeddings = case.embeddings

    assert embeddings.shape == (3, case.backbone.dim)
    assert embeddings.dtype == torch.float32
    assert embeddings.isfinite().all()
    assert (embeddings[0] - embeddings[1]).abs().max() > 1e-4 * embeddings.abs().max()


@torch.no_grad()
def test_embedding_twice_gives_the_same_bits(case: Case) -> None:
    """Nothing is drawn and nothing is remembered between two calls."""
    again = case.backbone(case.images)

    assert torch.equal(again, case.embeddings)


@torch.no_grad()
def test_one_at_a_time_equals_the_batch(case: Case) -> None:
    """An image's embedding does not depend on its neighbours."""
    single = torch.cat([case.backbone(image[None]) for image in case.images])

    scale = float(case.embeddings.abs().max())
    torch.testing.assert_close(single, case.embeddings, rtol=1e-4, atol=1e-5 * scale)


def test_a_backbone_is_built_ready_to_predict(case: Case) -> None:
    """Every layer of it stands in evaluation mode."""
    training = [name for name, module in case.backbone.named_modules() if module.training]

    assert training == []


def test_trunk_and_tail_share_nothing_and_lack_nothing(case: Case) -> None:
    """Each parameter of the original stands in exactly one of the two, and no classifier beside them."""
    trunk, tail = (
        {id(parameter) for parameter in part.parameters()} for part in (case.backbone.trunk, case.backbone.tail)
    )
    held = {id(parameter) for parameter in case.backbone.parameters()}

    assert trunk & tail == set()
    assert trunk | tail == held
    assert case.backbone.parameter_count == case.parameters


def test_a_known_family_is_cut_and_any_other_is_all_tail(case: Case) -> None:
    """A trunk with weights is what versions share; without a known last stage there is none."""
    has_trunk = count(case.backbone.trunk) > 0

    assert has_trunk == (case.backbone.name in CUT)
    assert count(case.backbone.tail) > 0


@pytest.mark.parametrize(
    ("name", "size", "ratio", "resample"),
    [
        ("efficientnet_lite0", 224, 0.875, "bicubic"),
        ("efficientnet_lite1", 240, 0.875, "bicubic"),
        ("efficientnet_lite2", 260, 0.875, "bicubic"),
        ("resnet18", 224, 0.875, "bilinear"),
        ("resnet32", 32, 1.0, "bicubic"),
        ("timm:test_resnet", 160, 0.95, "bilinear"),
    ],
)
def test_a_backbone_says_how_its_images_are_framed(name: str, size: int, ratio: float, resample: str) -> None:
    """Size, crop and filter are those that the weights were trained with."""
    framing = build(name).framing

    assert (framing.size, framing.crop_ratio, framing.resample) == (size, ratio, resample)


def test_a_third_of_the_default_backbone_may_learn() -> None:
    """The last stage and the head convolution: 1.02 M of 3.37 M parameters."""
    backbone = build("efficientnet_lite0")

    assert count(backbone.tail) == 1_017_600
    assert backbone.parameter_count == 3_371_008


def test_a_sixth_of_a_vision_transformer_may_learn() -> None:
    """The last two of twelve blocks, the norm after them and the pooling."""
    backbone = build("timm:vit_tiny_patch16_224")

    learning = {name.split(".")[3] for name, _ in backbone.tail.named_parameters() if ".blocks." in name}
    assert learning == {"10", "11"}
    assert 0.15 < count(backbone.tail) / backbone.parameter_count < 0.18


# Names


@pytest.mark.parametrize("name", ["resnet50", "", "timm", "EFFICIENTNET_LITE0", "efficientnet_lite3"])
def test_an_unknown_name_is_answered_with_the_known_ones(name: str) -> None:
    """The error lists every backbone there is."""
    with pytest.raises(UnknownBackbone) as refusal:
        build(name)

    assert f"'{name}'" in str(refusal.value)
    assert all(known in str(refusal.value) for known in NAMES)


def test_an_unknown_model_of_timm_is_answered_with_names_like_it() -> None:
    """A slip in the name is easily mended."""
    with pytest.raises(UnknownBackbone, match=r"timm has no model 'test_resnot'; names like it: .*test_resnet"):
        build("timm:test_resnot")


# Images of another size


def test_a_network_takes_images_of_the_size_after_the_at_sign() -> None:
    """It is the same network, cut and framed in the same way."""
    own, larger = (seeded(lambda name=name: build(name)) for name in ("timm:test_resnet", "timm:test_resnet@192"))
    assert isinstance(own, Backbone)
    assert isinstance(larger, Backbone)

    features = larger(larger.framing.blank())

    assert (own.name, larger.name) == ("timm:test_resnet", "timm:test_resnet@192")
    assert larger.framing == replace(own.framing, size=192)
    assert features.shape == (1, own.dim)
    assert all(torch.equal(tensor, larger.state_dict()[name]) for name, tensor in own.state_dict().items())


@pytest.mark.parametrize("pixels", ["", "0", "15", "1025", "0128", "-64", "6.4e1", "64@64", "٦٤"])
def test_a_size_must_be_a_whole_number_within_bounds(pixels: str) -> None:
    """And has one spelling: two names of one backbone would be two backbones to every store and cache."""
    with pytest.raises(UnknownBackbone, match=r"give a whole number from 16 to 1024 after the @"):
        build(f"resnet32@{pixels}")


def test_a_network_of_fixed_positions_takes_images_of_its_own_size_only() -> None:
    """That is said when it is built, not when the first image comes."""
    with pytest.raises(UnknownBackbone, match="takes images of 224 pixels only"):
        build("timm:deit_tiny_distilled_patch16_224@192")


# Given weights


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """Weights for ResNet-32, under its own names."""
    with torch.random.fork_rng():
        torch.manual_seed(21)
        return CifarResNet(blocks=5).state_dict()


def held_by(backbone: Backbone) -> list[Tensor]:
    return [*backbone.trunk.state_dict().values(), *backbone.tail.state_dict().values()]


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: from_torchvision(weights=None, num_classes=7),
    "resnet32": lambda: CifarResNet(blocks=5),
    "timm:test_resnet": lambda: from_timm("test_resnet", num_classes=7),
    "timm:test_convnext": lambda: from_timm("test_convnext", num_classes=7),
    "efficientnet_lite0": lambda: from_timm("tf_efficientnet_lite0"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_family_takes_weights_by_the_names_of_its_library(name: str) -> None:
    """All but those of the classifier, which may be for any number of classes."""
    given = seeded(NETWORKS[name]).state_dict()

    backbone = build(name, given)

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(held_by(backbone), given.values(), strict=False))
    assert backbone.pretrained


@pytest.mark.parametrize("name", NETWORKS)
def test_without_weights_a_backbone_starts_at_random(name: str) -> None:
    """And says so: a base session trains it whole."""
    first, second = (next(build(name).parameters()) for _ in range(2))

    assert not torch.equal(first, second)
    assert not build(name).pretrained


@pytest.mark.parametrize("name", [*CUT, *ALL_TAIL])
def test_the_shapes_of_a_backbone_need_no_memory(name: str) -> None:
    """On the meta device there are names and shapes, and no numbers."""
    with torch.device("meta"):
        backbone = build(name)

    assert all(parameter.is_meta for parameter in backbone.parameters())
    assert backbone.dim > 0


def test_weights_may_lack_the_counters_of_batch_norm(weights: dict[str, Tensor]) -> None:
    """Older files do, and a prediction does not use them."""
    kept = {name: tensor for name, tensor in weights.items() if not name.endswith("num_batches_tracked")}

    backbone = build("resnet32", kept)

    assert torch.equal(held_by(backbone)[0], weights["stem.0.weight"])


def test_weights_of_another_network_are_refused(weights: dict[str, Tensor]) -> None:
    """The error counts what is missing and what has another shape."""
    narrower = {**weights, "stem.0.weight": torch.ones(8, 3, 3, 3)}
    del narrower["stage3.4.bn2.bias"]

    with pytest.raises(WeightsMismatch) as refusal:
        build("resnet32", narrower)

    assert str(refusal.value) == (
        "weights of another network: 1 tensors are missing (stage3.4.bn2.bias first), "
        "1 have another shape (stem.0.weight first)"
    )


def test_refused_weights_change_nothing(weights: dict[str, Tensor]) -> None:
    """Not one tensor is loaded before all of them fit."""
    network = CifarResNet(blocks=5)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    incomplete = {name: tensor for name, tensor in weights.items() if not name.startswith("stage3")}

    with pytest.raises(WeightsMismatch, match="weights of another network"):
        load_by_name(network, incomplete)

    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in before.items())
