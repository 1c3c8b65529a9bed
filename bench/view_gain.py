"""What several views of an image are worth: five shots a class, more or fewer views of the images to be classified.

Shots are seen in their centre view, as in teaching. The network is the pretrained one, without a base session.
"""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import Tensor

from bench.chosen_engine import chosen_engine
from bench.datasets import DataError
from bench.datasets.files import class_folders, images_in, require_folder
from bench.few_shots import SHOTS, share, taught
from core.backbones import Backbone
from core.images import decode, fixed_views
from core.space import Space
from core.views import LabelledViews
from engine.compiled_module import throughput_mode
from engine.cores import usable_cores
from engine.graph_template import compile_module

VIEWS = (1, 2, 3, 4, 6)
MAX_STRANGERS = 500  # images in a draw


@dataclass
class Gain:
    """Shares in percent, one for each draw; gains are over one view in the same draw."""

    classes: int
    views: int
    accuracy: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)  # of images of known classes
    unknown: list[float] = field(default_factory=list)  # of images of other classes

    def over(self, one: "Gain") -> tuple[float, float]:
        """Mean gain of accuracy, and its standard error."""
        gains = [own - other for own, other in zip(self.accuracy, one.accuracy, strict=True)]
        return fmean(gains), stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0


class Features:
    """Reads folders of class folders; the network is compiled as in the service."""

    def __init__(self, backbone: Backbone) -> None:
        image = backbone.framing.blank()
        with torch.no_grad():
            activation = backbone.trunk(image)
        cpu = torch.device("cpu")
        self._framing = backbone.framing
        compiled = partial(compile_module, device=cpu, engine=chosen_engine())
        self._trunk = throughput_mode(compiled(backbone.trunk, image))
        self._tail = throughput_mode(compiled(backbone.tail, activation, latency=False))

    def read(self, folder: Path, *, views: int, most: int, seed: int) -> LabelledViews:
        """Features (n, views, M) of at most this many images of each class, chosen at random.

        Labels count the class folders in the order of their names, so they agree between folders of the same classes.
        """
        files, labels = [], []
        for label, own in enumerate(class_folders(require_folder(folder, "one folder of images for every class"))):
            found = images_in(own)
            chosen = random.Random(f"{seed} {own.name}").sample(found, min(most, len(found)))
            files += chosen
            labels += [label] * len(chosen)
        with ThreadPoolExecutor(usable_cores() + 1) as threads:
            features = list(threads.map(lambda file: self._features(file, views), files))
        return LabelledViews(torch.stack(features), torch.tensor(labels))

    def _features(self, file: Path, views: int) -> Tensor:
        image = decode(file.read_bytes(), short_side=self._framing.short_side)
        return torch.cat([self._tail(self._trunk(view[None])) for view in fixed_views(image, self._framing, views)])


def measure_gain(
    space: Space, shots: LabelledViews, images: LabelledViews, classes: int, *, draws: int, seed: int
) -> list[Gain]:
    """One result for each number of views, all from the same draws of classes and shots."""
    if shots.class_ids != images.class_ids:
        raise DataError(
            f"train/ has {len(shots.class_ids)} classes and test/ {len(images.class_ids)}; both need the same folders"
        )
    generator = torch.Generator().manual_seed(seed)
    found = [Gain(classes, views) for views in VIEWS if views <= images.views]
    for _ in range(draws):
        known = torch.randperm(len(shots.class_ids), generator=generator)[:classes]
        rows = _draw_shots(shots, known, generator)
        own, strange = (torch.isin(images.owners, known) == wanted for wanted in (True, False))
        strangers = strange.nonzero()[:, 0]
        strangers = strangers[torch.randperm(len(strangers), generator=generator)[:MAX_STRANGERS]]
        classifier, threshold = taught(space, shots.select(rows))
        for one in found:
            distances = classifier.distances(images.inputs[own, : one.views])
            nearest = torch.tensor(classifier.class_ids)[distances.argmin(1)]
            foreign = classifier.distances(images.inputs[strangers, : one.views])
            one.accuracy.append(share(nearest == images.labels[own]))
            one.accepted.append(share(distances.min(1).values <= threshold))
            one.unknown.append(share(foreign.min(1).values > threshold))
    return found


def _draw_shots(shots: LabelledViews, known: Tensor, generator: torch.Generator) -> Tensor:
    rows: Sequence[Tensor] = [(shots.owners == owner).nonzero()[:, 0] for owner in known.tolist()]
    return torch.cat([own[torch.randperm(len(own), generator=generator)[:SHOTS]] for own in rows])
