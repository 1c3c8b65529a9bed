"""The paper's two networks: ResNet-18 for CUB-200 and the 32-layer CIFAR ResNet."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.backbones.backbone import IMAGENET, Backbone, Normalisation, Normalise
from core.backbones.weights import load_by_name, without
from core.images import Framing
from core.torchvision_ops import make_torchvision_importable

CIFAR = Normalisation((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762))


def build_resnet18(name: str, weights: Mapping[str, Tensor] | None) -> Backbone:
    """torchvision's ResNet-18."""
    make_torchvision_importable()
    from torchvision.models import resnet18

    model: Any = resnet18(weights=None)
    if weights is not None:
        load_by_name(without(model, "fc"), weights)
    stem = (model.conv1, model.bn1, model.relu, model.maxpool)
    trunk = nn.Sequential(Normalise(IMAGENET), *stem, model.layer1, model.layer2, model.layer3)
    tail = nn.Sequential(model.layer4, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    framing = Framing(size=224, resample="bilinear")
    return Backbone(name, framing, 512, trunk, tail, pretrained=weights is not None)


def build_resnet32(name: str, weights: Mapping[str, Tensor] | None) -> Backbone:
    """Three stages of five blocks on 32 px images; without public weights, so that a base session trains it whole."""
    network = CifarResNet(blocks=5)
    if weights is not None:
        load_by_name(network, weights)
    trunk = nn.Sequential(Normalise(CIFAR), network.stem, network.stage1, network.stage2)
    tail = nn.Sequential(network.stage3, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Backbone(name, Framing(size=32, crop_ratio=1.0), 64, trunk, tail, pretrained=weights is not None)


class CifarResNet(nn.Module):
    """He et al. 2016, section 4.2: widths 16, 32, 64, identity short cuts padded with zeros."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.stage1 = _stage(16, 16, blocks, stride=1)
        self.stage2 = _stage(16, 32, blocks, stride=2)
        self.stage3 = _stage(32, 64, blocks, stride=2)


class _Block(nn.Module):
    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride = stride
        self.extra = width - width_in

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        short_cut = x[:, :, :: self.stride, :: self.stride]
        short_cut = F.pad(short_cut, (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))
        return torch.relu(y + short_cut)


def _stage(width_in: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = _Block(width_in, width, stride)
    return nn.Sequential(first, *(_Block(width, width, 1) for _ in range(blocks - 1)))
