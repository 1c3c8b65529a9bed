"""A base session from class folders to its result: the same steps for the command line and for a worker."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from core.progress import Report
from engine.backbone_cache import BackboneCache
from learners.base_folder import ClassFolder
from learners.base_images import Advance, ImageReader, read_images
from learners.base_training import BaseResult, base_config, train_base, trunk_for
from store.settings import Settings


class Steps(Protocol):
    """Whom a base session reports to."""

    def reading(self, files: int, classes: int) -> AbstractContextManager[Advance]: ...

    def training(self, images: int) -> AbstractContextManager[Report]: ...

    def check(self) -> None:
        """Raises if the session must stop."""


def learn_base(
    folders: Sequence[ClassFolder],
    backbones: BackboneCache,
    name: str,
    epochs: int | None,
    settings: Settings,
    steps: Steps,
) -> BaseResult:
    """Read every image once and train; the scratch folder's disk holds what the trunk makes of them."""
    backbone = backbones.pretrained(name)
    config = base_config(backbone, epochs)
    reader = ImageReader(backbone, trunk_for(backbones, backbone, config), max_pixels=settings.max_pixels)
    with steps.reading(sum(len(folder.files) for folder in folders), len(folders)) as advance:
        images = read_images(folders, reader, settings.room, advance)
    with steps.training(len(images.training)) as report:
        return train_base(folders, images, backbones, backbone, config, report, steps.check)
