"""A compiled backbone computes what the backbone does; one whose files have changed is refused."""

import shutil
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from core.backbones import Backbone
from core.errors import WeightsMismatch
from core.space import Space
from core.state import weights_of, with_weights
from engine.compiled_backbone import MANIFEST, CompiledBackbone
from engine.errors import BrokenCompiledBackbone

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=["read", "torch"])
def compiled(request: pytest.FixtureRequest, backbone: Backbone, prepared_resnet32: Path) -> CompiledBackbone:
    return (
        CompiledBackbone.read(prepared_resnet32)
        if request.param == "read"
        else CompiledBackbone.on_torch(backbone, CPU)
    )


@pytest.fixture
def other(backbone: Backbone) -> Backbone:
    """The same network after some training."""
    changed = deepcopy(backbone)
    with torch.no_grad():
        for weight in changed.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return changed


def images(backbone: Backbone, count: int = 3) -> Tensor:
    side = backbone.framing.size
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)


def close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).norm() < 1e-4 * expected.norm())


def test_it_knows_what_serving_asks_of_a_backbone(compiled: CompiledBackbone, backbone: Backbone) -> None:
    assert (compiled.name, compiled.framing, compiled.dim) == (backbone.name, backbone.framing, backbone.dim)
    own = weights_of(backbone, "tail")
    assert compiled.tail_weights.keys() == own.keys()
    assert all(torch.equal(compiled.tail_weights[name], own[name]) for name in own)


@torch.no_grad()
def test_untrained_it_answers_as_the_backbone_does(compiled: CompiledBackbone, backbone: Backbone) -> None:
    batch = images(backbone)
    assert close(compiled.tail({})(compiled.trunk({})(batch)), backbone(batch))
    assert compiled.trunk({}) is compiled.trunk({}), "all models on a backbone share its trunk"


@torch.no_grad()
@pytest.mark.parametrize("scope", ["tail", "all"])
def test_it_carries_trained_weights(
    compiled: CompiledBackbone, backbone: Backbone, other: Backbone, scope: str
) -> None:
    weights = weights_of(other, "tail" if scope == "tail" else "all")
    batch = images(backbone)
    expected = with_weights(backbone, weights)(batch)

    assert close(compiled.tail(weights)(compiled.trunk(weights)(batch)), expected)
    assert not close(compiled.tail({})(compiled.trunk({})(batch)), expected)


@torch.no_grad()
@pytest.mark.parametrize("scope", ["tail", "all"])
def test_a_network_has_the_weights_and_space_of_a_version(
    compiled: CompiledBackbone, backbone: Backbone, other: Backbone, scope: str
) -> None:
    """Compiled, warm, and with what an image has to be cut to."""
    weights, space = weights_of(other, "tail" if scope == "tail" else "all"), Space("cosine")
    batch = images(backbone)

    network = compiled.network(weights, space, (7, 3))

    assert close(network.tail(network.trunk(batch)), with_weights(backbone, weights)(batch))
    assert (network.trunk is compiled.pretrained_trunk) == (scope == "tail")
    assert (network.key, network.space) == ((7, 3), space)
    assert (network.framing, network.dim) == (backbone.framing, backbone.dim)


def test_weights_of_another_network_are_refused(compiled: CompiledBackbone) -> None:
    with pytest.raises(WeightsMismatch, match="strange"):
        compiled.tail({"tail.strange": torch.zeros(3)})
    with pytest.raises(WeightsMismatch):
        compiled.trunk({"trunk.strange": torch.zeros(3)})


@pytest.mark.parametrize("name", ["weights.safetensors", "trunk.bin", "tail.xml", MANIFEST])
def test_files_that_changed_are_refused(prepared_resnet32: Path, tmp_path: Path, name: str) -> None:
    """A disk that was full, a copy that was cut short: never a network that answers nonsense."""
    shutil.copytree(prepared_resnet32, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-1])

    with pytest.raises(BrokenCompiledBackbone):
        CompiledBackbone.read(tmp_path)


def test_a_folder_without_a_compiled_backbone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenCompiledBackbone):
        CompiledBackbone.read(tmp_path)
