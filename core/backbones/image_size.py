"""`<one>@<pixels>`: a network on images of another size than its own.

Networks without fixed positions take images of any size. Larger ones show more detail, and things appear in them as
large as they did in training, where random crops were enlarged (Touvron et al., NeurIPS 2019).
"""

from dataclasses import replace

import torch

from core.backbones.backbone import Backbone
from core.errors import UnknownBackbone


def resized(backbone: Backbone, name: str, size: int) -> Backbone:
    """The same network under another name, given images of this size. Raises UnknownBackbone if it cannot take them."""
    own = backbone.framing
    backbone.name, backbone.framing = name, replace(own, size=size)
    try:
        with torch.no_grad():
            backbone(backbone.framing.blank())
    except Exception as error:  # each network has errors of its own for this
        raise UnknownBackbone(f"{name} is not possible: the network takes images of {own.size} pixels only") from error
    return backbone
