"""One base session, from class folders to a learner that can be published; writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from core.backbones import Backbone
from core.base_session import BaseConfig, base_session
from core.progress import Report
from core.state import LearnerState, weights_of
from core.views import features_of, trainable_part
from engine.backbone_cache import BackboneCache
from engine.compiled_module import CompiledModule
from learners.base_folder import ClassFolder, FolderError
from learners.base_images import Looked, Skipped, Told, look
from learners.loading import VersionWeights


@dataclass(frozen=True, eq=False)
class GuardPictures:
    """Pictures held out of training: files, places of their classes, and features under the new network."""

    data: tuple[bytes, ...]
    places: tuple[int, ...]
    features: Tensor  # (g, M)


@dataclass(frozen=True, eq=False)
class Learnt:
    """What came of a base session; a class goes by its place among `names`."""

    names: tuple[str, ...]
    state: LearnerState
    networks: BackboneCache
    guard: GuardPictures | None
    pictures: int
    skipped: tuple[Skipped, ...]

    @property
    def network(self) -> VersionWeights:
        return VersionWeights(self.state.weights, self.state.space, self.state.weights)

    def carrier(self) -> tuple[Backbone, CompiledModule]:
        """The backbone with the new weights, and its trunk."""
        name = self.state.backbone
        return self.networks.trained(name, self.network), self.networks.kit(name).trunk(self.network.weights)


def base_config(backbone: Backbone, epochs: int | None = None) -> BaseConfig:
    """A backbone without pretrained weights trains whole."""
    config = BaseConfig() if backbone.pretrained else BaseConfig.from_scratch()
    return config if epochs is None else replace(config, epochs=epochs)


def look_for(
    folders: Sequence[ClassFolder],
    networks: BackboneCache,
    backbone: Backbone,
    config: BaseConfig,
    room: Path,
    *,
    max_pixels: int,
    told: Told,
) -> Looked:
    """The pictures as what this session trains takes them."""
    trunk = networks.kit(backbone.name).pretrained_trunk if config.scope == "tail" else None
    return look(folders, backbone, trunk, room, max_pixels=max_pixels, told=told)


def learn(
    folders: Sequence[ClassFolder],
    looked: Looked,
    networks: BackboneCache,
    backbone: Backbone,
    config: BaseConfig,
    report: Report,
) -> Learnt:
    """With a single class there is nothing to tell apart: the network stays as it was and only sees the class."""
    guarding = _bytes_of(looked.guard_files)  # before training: files that go away now have not cost an hour yet
    state = base_session(backbone, looked.training, config, guard=looked.guard, device=networks.device, report=report)
    if not state.weights:  # of no epoch; what a backbone is without them is another network in every process
        state = replace(state, weights=weights_of(backbone, config.scope))
    learnt = Learnt(tuple(folder.name for folder in folders), state, networks, None, len(looked), looked.skipped)
    if looked.guard is None:
        return learnt
    part = trainable_part(networks.trained(backbone.name, learnt.network), config.scope)
    features = features_of(part.to(networks.device), looked.guard.centre(), networks.device)[:, 0]
    return replace(learnt, guard=GuardPictures(guarding, tuple(looked.guard.labels.tolist()), features))


def _bytes_of(files: Sequence[Path]) -> tuple[bytes, ...]:
    try:
        return tuple(file.read_bytes() for file in files)
    except OSError as error:
        raise FolderError(f"{error.filename} could be read a moment ago and cannot any more; start again") from error
