"""What the peers serve: the backbone in torch and the nearest class mean, in the plainest form."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, NearestClassMean
from core.images import centre_view, decode
from core.space import Space
from engine.pretrained import as_it_comes


def save_prototypes(file: Path, prototypes: Tensor) -> None:
    """Row k is class k + 1."""
    save_file({"prototypes": prototypes.contiguous()}, file)


class Classifier:
    """Eager torch in channels-last order, the usual choice on a CPU."""

    def __init__(self, backbone: str, file: Path) -> None:
        self.backbone = as_it_comes(backbone).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        prototypes = load_file(file)["prototypes"]
        bank = PrototypeBank.empty(self.backbone.dim, 1).with_classes(
            [ClassId(row + 1) for row in range(len(prototypes))], prototypes, [1] * len(prototypes)
        )
        self.nearest = NearestClassMean(Space("power-cosine"), bank, Certainty())

    def input_of(self, data: bytes) -> Tensor:
        framing = self.backbone.framing
        return centre_view(decode(data, short_side=framing.short_side), framing)

    @torch.inference_mode()
    def classes(self, inputs: Tensor) -> list[int]:
        return list(self.nearest.nearest(self.backbone(inputs)))
