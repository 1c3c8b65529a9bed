"""One base session, from class folders to a learner that can be published. Writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from core.backbones import Backbone
from core.base_session import BaseConfig, base_session
from core.progress import Check, Report, unchecked
from core.state import LearnerState, weights_of
from core.views import CPU, features_of
from engine.backbone_cache import BackboneCache
from engine.compiled_backbone import CompiledBackbone
from engine.compiled_module import CompiledModule
from learners.base_folder import ClassFolder, FolderError, ImageFile
from learners.base_images import BaseImages, Skipped


@dataclass(frozen=True, eq=False)
class GuardImages:
    """Images held out of training: their bytes, the places of their classes, and their features."""

    data: tuple[bytes, ...]
    places: tuple[int, ...]
    features: Tensor  # (g, M) under the new network


@dataclass(frozen=True, eq=False)
class BaseResult:
    """What came of a base session. A class is known by its place among `names`."""

    names: tuple[str, ...]
    state: LearnerState
    backbone: Backbone  # as the session found it
    tail: nn.Module  # with the new weights
    compiled: CompiledBackbone
    guard: GuardImages | None
    images: int
    skipped: tuple[Skipped, ...]


def base_config(backbone: Backbone, epochs: int | None = None) -> BaseConfig:
    """A backbone without pretrained weights trains whole."""
    config = BaseConfig() if backbone.pretrained else BaseConfig.from_scratch()
    return config if epochs is None else replace(config, epochs=epochs)


def trunk_for(backbones: BackboneCache, backbone: Backbone, config: BaseConfig) -> CompiledModule | None:
    """What images pass before training; nothing, where the trunk itself is trained."""
    return backbones.compiled(backbone.name).pretrained_trunk if config.scope == "tail" else None


def train_base(
    folders: Sequence[ClassFolder],
    images: BaseImages,
    backbones: BackboneCache,
    backbone: Backbone,
    config: BaseConfig,
    report: Report,
    check: Check = unchecked,
) -> BaseResult:
    """With a single class there is nothing to tell apart: the network stays as it was and only embeds the class."""
    # Before training: a file that is gone, or a backbone that cannot be compiled, has not cost an hour yet.
    guard_data, compiled = _read(images.guard_files), backbones.compiled(backbone.name)
    outcome = base_session(backbone, images.training, config, device=backbones.device, report=report, check=check)
    state = outcome.state
    if not state.weights:  # no epoch; without weights of its own the version would stand on each process's own backbone
        state = replace(state, weights=weights_of(backbone, config.scope))
    guard = None
    if images.guard is not None:
        features = features_of(outcome.module, images.guard.centre(), CPU, check=check)[:, 0]
        guard = GuardImages(guard_data, tuple(images.guard.labels.tolist()), features)
    module = outcome.module
    return BaseResult(
        tuple(folder.name for folder in folders),
        state,
        backbone,
        module.tail if isinstance(module, Backbone) else module,
        compiled,
        guard,
        len(images),
        images.skipped,
    )


def _read(files: Sequence[ImageFile]) -> tuple[bytes, ...]:
    try:
        return tuple(file.read_bytes() for file in files)
    except OSError as error:
        raise FolderError(f"{error.filename} could be read a moment ago and cannot any more; start again") from error
