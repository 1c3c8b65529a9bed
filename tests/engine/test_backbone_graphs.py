"""Every kind of backbone is compiled for serving, and its graphs compute what the network does.

Most networks are the smallest of their kinds; the default backbone is in `test_engines`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from core.backbones import Backbone, build
from core.state import weights_of, with_weights
from engine.compiled_backbone import CompiledBackbone, write_compiled_backbone

KINDS = (
    "resnet32+timm:test_vit",  # two sizes of images and two shapes of activations
    "timm:test_vit3",  # register tokens, scaled layers, pooling by attention
    "timm:vit_small_patch14_dinov2.lvd142m",
    "timm:convnext_atto.d2_in1k",
    "timm:test_efficientnet",
    "timm:test_byobnet",  # all tail: its trunk only normalises and has no weights
)


@pytest.fixture(scope="module", params=KINDS)
def backbone(request: pytest.FixtureRequest) -> Iterator[Backbone]:
    """With seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        yield build(request.param)


@pytest.fixture(scope="module")
def compiled(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> CompiledBackbone:
    folder: Path = tmp_path_factory.mktemp("compiled")
    write_compiled_backbone(backbone, folder)
    return CompiledBackbone.read(folder)


LARGE = ("timm:vit_small_patch14_dinov2.lvd142m",)  # 518 pixels: an image takes as long as all others together


@pytest.fixture(scope="module")
def images(backbone: Backbone) -> Tensor:
    side, count = backbone.framing.size, 1 if backbone.name in LARGE else 2
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).norm() < 1e-4 * expected.norm())


@torch.no_grad()
def test_the_graphs_compute_what_the_network_does(
    compiled: CompiledBackbone, backbone: Backbone, images: Tensor
) -> None:
    """With the weights it comes with, then with a trained tail; an image alone as well as several."""
    assert (compiled.framing, compiled.dim) == (backbone.framing, backbone.dim)
    trunk, tail, plain = compiled.trunk({}), compiled.tail({}), backbone(images)
    activations = trunk(images)
    assert close(tail(activations), plain)
    assert len(images) == 1 or close(tail(trunk(images[:1])), plain[:1])

    trained = {
        name: weight * 1.2 if weight.is_floating_point() else weight
        for name, weight in weights_of(backbone, "tail").items()
    }
    expected = with_weights(backbone, trained)(images)

    assert compiled.trunk(trained) is trunk
    assert close(compiled.tail(trained)(activations), expected)
    assert not close(tail(activations), expected)
