"""What somebody without a base session gets: a few classes of a few shots, taught, refined, and asked.

Classes and shots are drawn from a folder of class folders. Settings are chosen on one half of its classes and reported
on the other. A draw is measured with the version that teaching gives at once (provisional), with the one after its
session (refined), and, with many classes, after a stream of sessions of ten classes each.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

import torch
from torch import Tensor

from bench.datasets import DatasetImage
from bench.datasets.files import class_folders, file_image, images_in, require_folder
from bench.datasets.session_split import chunks, random_for
from bench.datasets.stream import DataError
from bench.fscil import RunContext, activations
from bench.methods import METHODS, SessionContext, Setup
from bench.open_set import auroc, calibration_error, calibration_gaps
from core.classifier import Certainty, NearestClassMean, calibrate, leeway_of
from core.incremental_session import IncrementalConfig
from core.refinement import Refinement, refine, teach
from core.state import LearnerState, with_weights
from core.trials import SessionImages
from core.unknown import ACCEPTED, pooled, threshold_of
from core.views import CPU, LabelledViews, features_of

Half = Literal["choose", "report", "all"]
TESTS = 20  # images of a class to ask about, at most
STREAMED = 10  # classes in a session of a stream


@dataclass(frozen=True)
class Pool:
    """The images of one class: some to draw shots from, others to ask about."""

    shots: Sequence[DatasetImage]
    tests: Sequence[DatasetImage]


@dataclass(frozen=True)
class CertaintyFigures:
    """With the threshold and the temperature that a version of the service would get."""

    accepted: float  # of further images of known classes
    calibration_gaps: tuple[float, ...]  # see `calibration_error`
    near_refused: float | None = None  # of images of other classes of the folder
    near_refused_at_95: float | None = None  # with the threshold that accepts exactly 95 % of the known
    near_auroc: float | None = None
    far_refused: float | None = None  # of images of another folder
    far_auroc: float | None = None


@dataclass(frozen=True)
class Scene:
    """Shares in percent, seconds of a session; None where there was nothing to measure."""

    provisional: float
    refined: float
    streamed: float | None
    promoted: float
    certainty: CertaintyFigures
    seconds: float


def read_pools(root: Path, half: Half) -> dict[int, Pool]:
    """Classes by number. A folder with `train` and `test` gives shots and tests; any other is cut in two."""
    require_folder(root, "one folder of images for every class")
    whole = not (root / "train").is_dir()
    folders = class_folders(root if whole else root / "train")
    pools = {c: _pool(root, folder, c, whole=whole) for c, folder in enumerate(folders)}
    chosen = {"all": (0, 1), "choose": (0,), "report": (1,)}[half]
    return {c: pool for c, pool in pools.items() if c % 2 in chosen}


def _pool(root: Path, folder: Path, class_id: int, *, whole: bool) -> Pool:
    images = [file_image(root, file, class_id) for file in images_in(folder)]
    if whole:
        random_for("newcomer", class_id).shuffle(images)
        return Pool(images[: len(images) // 2], images[len(images) // 2 :])
    other = root / "test" / folder.name
    tests = images_in(other) if other.is_dir() else []
    return Pool(images, [file_image(root, file, class_id) for file in tests])


@dataclass(frozen=True)
class Newcomer:
    """Measures draws of one folder; `far` are images of something else altogether."""

    context: RunContext
    pools: Mapping[int, Pool]
    far: Sequence[DatasetImage]
    far_context: RunContext
    config: IncrementalConfig
    replay: bool = True

    def draw(self, classes: int, shots: int, number: int) -> Scene:
        """Draw this many classes and shots, and measure; the same number gives the same draw."""
        random = random_for("draw", classes, shots, number)
        usable = sorted(c for c, pool in self.pools.items() if len(pool.shots) >= shots and pool.tests)
        if len(usable) < classes:
            raise DataError(
                f"{classes} classes were asked for; {len(usable)} have {shots} images to be taught with and others to "
                "be asked about"
            )
        order = random.sample(usable, len(usable))
        known, others = order[:classes], order[classes : 2 * classes]
        taught = [image for c in known for image in random.sample(list(self.pools[c].shots), shots)]
        asked = [image for c in known for image in list(self.pools[c].tests)[:TESTS]]
        strange = [image for c in others for image in list(self.pools[c].tests)[:TESTS]]
        return self._measure(known, taught, asked, strange, seed=number)

    def _measure(
        self,
        known: Sequence[int],
        taught: Sequence[DatasetImage],
        asked: Sequence[DatasetImage],
        strange: Sequence[DatasetImage],
        seed: int,
    ) -> Scene:
        config = replace(self.config, seed=seed)
        shots = self._views(taught)
        untaught = LearnerState.untaught(self.context.backbone)
        provisional = teach(self.context.backbone, untaught, shots.centre(), config)
        started = time.perf_counter()
        refinement = refine(self.context.backbone, untaught, SessionImages(shots), config)
        seconds = time.perf_counter() - started
        return Scene(
            provisional=self._accuracy(provisional, asked),
            refined=self._accuracy(refinement.state, asked),
            streamed=self._streamed(known, shots, config, asked),
            promoted=100.0 * refinement.verdict.promoted,
            certainty=self._certainty(refinement, asked, strange),
            seconds=seconds,
        )

    def _certainty(
        self, refinement: Refinement, asked: Sequence[DatasetImage], strange: Sequence[DatasetImage]
    ) -> CertaintyFigures:
        state, held_out = refinement.state, refinement.held_out
        leeway, limit = _unknown(refinement)
        temperature = calibrate(held_out.distances, held_out.own).temperature
        distances, own = self._distances(state, asked)
        nearest = _strangeness(distances, leeway)
        gaps = calibration_gaps(torch.softmax(-distances / temperature, 1), own)
        figures = CertaintyFigures(_share(nearest <= limit), tuple(gaps.tolist()))
        if strange:
            found = _strangeness(self._distances(state, strange)[0], leeway)
            figures = replace(
                figures,
                near_refused=_share(found > limit),
                near_refused_at_95=_share(found > float(nearest.quantile(ACCEPTED))),
                near_auroc=auroc(nearest, found),
            )
        if self.far:
            found = _strangeness(self._distances(state, self.far, self.far_context)[0], leeway)
            figures = replace(figures, far_refused=_share(found > limit), far_auroc=auroc(nearest, found))
        return figures

    def _streamed(
        self, known: Sequence[int], shots: LabelledViews, config: IncrementalConfig, asked: Sequence[DatasetImage]
    ) -> float | None:
        """After sessions of ten classes, one after another."""
        if len(known) < 2 * STREAMED:
            return None
        base = state = LearnerState.untaught(self.context.backbone)
        old: LabelledViews | None = None
        setup = Setup(incremental=config, replay=self.replay)
        for some in chunks(list(known), STREAMED):
            new = shots.select(torch.isin(shots.labels, torch.tensor(some)).nonzero()[:, 0])
            backbone = with_weights(self.context.backbone, state.weights)
            given = (backbone, base, state, new, old, None, setup, CPU, lambda _progress: None)
            session = SessionContext(*given, pretrained=self.context.backbone)
            state = METHODS["protoquad"].learn(session).state
            old = new if old is None else old.joined(new)
        return self._accuracy(state, asked)

    def _views(self, images: Sequence[DatasetImage]) -> LabelledViews:
        return activations(self.context, Setup(), images, "shots")

    def _accuracy(self, state: LearnerState, images: Sequence[DatasetImage]) -> float:
        distances, own = self._distances(state, images)
        return _share(distances.argmin(1) == own)

    def _distances(
        self, state: LearnerState, images: Sequence[DatasetImage], context: RunContext | None = None
    ) -> tuple[Tensor, Tensor]:
        """To every class (n, K), and the column of each one's own; -1 for a class that is not known."""
        views = activations(context or self.context, Setup(views=0), images, "test images")
        tail = with_weights(self.context.backbone, state.weights).tail
        classifier = NearestClassMean(state.space, state.bank, Certainty())
        distances = classifier.distances(features_of(tail, views, CPU)[:, 0])
        column = {int(class_id): place for place, class_id in enumerate(classifier.class_ids)}
        return distances, torch.tensor([column.get(label, -1) for label in views.labels.tolist()])


def mean_and_error(scenes: Sequence[Scene]) -> dict[str, dict[str, float] | None]:
    """For each figure its mean and standard error over draws, and the same for the gain of the session."""
    rows = [_flat(scene) for scene in scenes]
    figures = {name: _summary([row[name] for row in rows]) for name in rows[0]}
    return {**figures, "calibration_error": _calibration([scene.certainty.calibration_gaps for scene in scenes])}


def _flat(scene: Scene) -> dict[str, float | None]:
    row = asdict(scene)
    row |= row.pop("certainty")
    del row["calibration_gaps"]
    row["gain"] = scene.refined - scene.provisional
    row["stream_gain"] = None if scene.streamed is None else scene.streamed - scene.refined
    return row


def _summary(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    error = stdev(known) / len(known) ** 0.5 if len(known) > 1 else 0.0
    return {"mean": round(fmean(known), 4), "error": round(error, 4)}


def _calibration(gaps: Sequence[Sequence[float]]) -> dict[str, float]:
    """Of all draws together, with its error by the jackknife: what leaving out one draw changes."""
    whole, count = calibration_error(gaps), len(gaps)
    if count < 2:
        return {"mean": round(whole, 4), "error": 0.0}
    without = [calibration_error([*gaps[:place], *gaps[place + 1 :]]) for place in range(count)]
    spread = sum((one - fmean(without)) ** 2 for one in without)
    return {"mean": round(whole, 4), "error": round(((count - 1) / count * spread) ** 0.5, 4)}


def _unknown(refinement: Refinement) -> tuple[Tensor, float]:
    """Leeway of each class (K,), and the threshold, as a version of the service has them."""
    state, found = refinement.state, refinement.distances_by_class
    limit = threshold_of(pooled(found.values(), by_class=state.space.by_class))
    return leeway_of(state.space, state.bank.class_ids, found), math.inf if limit is None else limit


def _strangeness(distances: Tensor, leeway: Tensor) -> Tensor:
    """How far images are from the nearest class beyond its leeway, (n, K) → (n,)."""
    nearest, places = distances.min(1)
    return nearest - leeway[places]


def _share(hits: Tensor) -> float:
    return 100.0 * float(hits.float().mean())
