"""A whole run at a small size."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from bench.activations import ActivationStore, Done
from bench.datasets import DatasetImage, Session, Stream
from bench.fscil import RunContext, run
from bench.methods import Setup
from core.images import centre_view, decode
from core.progress import Progress
from core.views import LabelledViews


def without_reading(stream: Stream, sessions: slice) -> Stream:
    """The same stream, where reading an image of these sessions is an error."""

    def locked(images: tuple[DatasetImage, ...]) -> tuple[DatasetImage, ...]:
        def fail() -> bytes:
            raise AssertionError("an image was read again")

        return tuple(DatasetImage(image.key, image.class_id, fail) for image in images)

    kept = list(stream.sessions)
    kept[sessions] = [Session(locked(session.train), locked(session.test)) for session in kept[sessions]]
    return Stream(stream.name, stream.class_names, tuple(kept))


def test_the_frozen_baseline_equals_nearest_class_mean_by_hand(
    context: RunContext, stream: Stream, setup: Setup
) -> None:
    """Untrained weights: the mean of unit features, nearest by cosine, recomputed from scratch."""
    plain = replace(setup, method="ncm", views=0, guard_per_class=0)
    plain = replace(plain, base=replace(plain.base, epochs=0, metric="cosine"))

    result = run(context, stream, plain)

    def feature(image: DatasetImage) -> torch.Tensor:
        with torch.no_grad():
            vector = context.backbone(centre_view(decode(image.read()), context.backbone.framing)[None])[0]
        return vector / vector.norm()

    prototypes = {}
    for session in stream.sessions:
        for class_id in session.class_ids:
            mean = torch.stack([feature(p) for p in session.train if p.class_id == class_id]).mean(0)
            prototypes[class_id] = mean / mean.norm()
    tests = [image for session in stream.sessions for image in session.test]
    asked = [feature(image) for image in tests]
    expected = [max(prototypes, key=lambda c, own=own: float(own @ prototypes[c])) for own in asked]
    agreement = sum(e == p for e, p in zip(expected, result.last.predicted.tolist(), strict=True)) / len(tests)
    assert agreement > 0.95  # activations are kept in half precision, which may turn a near tie


def test_a_finished_run_is_not_computed_again(context: RunContext, stream: Stream, setup: Setup) -> None:
    """The same run answers from its folder without reading an image."""
    first = run(context, stream, setup)

    again = run(context, without_reading(stream, slice(0, 3)), setup)

    assert first.evaluation == again.evaluation
    assert first.seconds == again.seconds


def test_a_stopped_run_continues_where_it_was(context: RunContext, stream: Stream, setup: Setup) -> None:
    """Interrupted in its last session, a run repeats only that one and ends as if nothing had happened."""
    gone = replace(setup, gate=False)
    undisturbed = run(context, stream, gone)
    steps = context.display.steps  # type: ignore[attr-defined]
    per_session = gone.incremental.epochs * gone.incremental.episodes
    total = len(steps)

    class Stop(Exception): ...

    def stop_in_the_last_session(step: Progress) -> None:
        steps.append(step)
        if len(steps) == 2 * total - 1:
            raise Stop

    other = replace(context, cache=context.cache.parent / "other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other.display, "training", lambda _: nullcontext(stop_in_the_last_session))
        with pytest.raises(Stop):
            run(other, stream, gone)
    before = len(steps)
    resumed = run(other, without_reading(stream, slice(0, 2)), gone)

    assert undisturbed.evaluation == resumed.evaluation
    assert len(steps) - before == per_session


def test_a_stopped_base_session_continues_after_its_last_epoch(
    context: RunContext, stream: Stream, setup: Setup
) -> None:
    """Stopped in its second epoch it trains only that one again, ends the same, and counts the seconds before."""
    frozen = replace(setup, method="ncm")
    undisturbed = run(context, stream, frozen)
    steps = context.display.steps  # type: ignore[attr-defined]
    per_epoch = len(steps) // 2

    class Stop(Exception): ...

    def stop_in_the_second_epoch(step: Progress) -> None:
        if step.epoch == 2:
            raise Stop

    other = replace(context, cache=context.cache.parent / "other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other.display, "training", lambda _: nullcontext(stop_in_the_second_epoch))
        with pytest.raises(Stop):
            run(other, stream, frozen)
    (kept,) = (other.cache / "base").glob("*.epochs")
    before = float(torch.load(kept, weights_only=True)["seconds"])
    steps.clear()
    resumed = run(other, stream, frozen)

    assert len(steps) == per_epoch
    assert resumed.evaluation == undisturbed.evaluation
    assert resumed.seconds[0] > before > 0
    assert not kept.exists()


def test_runs_share_a_base_session(context: RunContext, stream: Stream, setup: Setup) -> None:
    """A second method does not train the base session again; a fresh run does."""
    run(context, stream, replace(setup, method="ncm"))
    trained = len(context.display.steps)  # type: ignore[attr-defined]

    run(context, stream, replace(setup, method="teen"))
    shared = len(context.display.steps)  # type: ignore[attr-defined]
    run(context, stream, replace(setup, method="teen"), fresh=True)
    fresh = len(context.display.steps)  # type: ignore[attr-defined]

    assert trained > 0
    assert shared == trained
    assert fresh == 2 * trained


def test_seconds_of_a_session_are_those_of_its_training(
    context: RunContext, stream: Stream, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of the trunk, which only the first of several runs computes: here the clock jumps while it does."""
    jumped: list[float] = []
    counting = context.display.counting

    def slow(what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        if what == "shots":
            jumped.append(1000.0)
        return counting(what, total)

    monkeypatch.setattr(context.display, "counting", slow)
    monkeypatch.setattr("bench.fscil.time", SimpleNamespace(perf_counter=lambda: time.perf_counter() + sum(jumped)))
    result = run(context, stream, replace(setup, method="ncm"))

    assert len(jumped) == 2
    assert max(result.seconds[1:]) < 500


def test_a_changed_image_transform_invalidates_the_cache(
    context: RunContext, stream: Stream, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If images are scaled in another way, nothing computed before is reused."""
    frozen = replace(setup, method="ncm")
    run(context, stream, frozen)
    before = len(context.display.counted)  # type: ignore[attr-defined]

    monkeypatch.setattr("bench.fscil.centre_view", lambda *given: centre_view(*given).roll(1, -2))
    run(context, stream, frozen)

    assert before > 0
    assert len(context.display.counted) == 2 * before  # type: ignore[attr-defined]


def test_base_activations_are_read_once(
    context: RunContext, stream: Stream, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard images and training images are read apart: dividing all of them in memory would copy what is trained on."""
    read: list[set[str]] = []
    views = ActivationStore.views

    def noted(store: ActivationStore, images: Sequence[DatasetImage], *done: Done) -> LabelledViews:
        read.append({image.key for image in images} & {image.key for image in stream.base.train})
        return views(store, images, *done)

    monkeypatch.setattr(ActivationStore, "views", noted)
    run(context, stream, replace(setup, method="ncm"))

    guard, training = (keys for keys in read if keys)
    assert (len(guard), len(training)) == (8, 24)
    assert guard | training == {image.key for image in stream.base.train}


def test_other_settings_are_another_run(context: RunContext, stream: Stream, setup: Setup) -> None:
    """A changed seed does not find the answers of the run before."""
    run(context, stream, setup)
    trained = len(context.display.steps)  # type: ignore[attr-defined]

    run(context, stream, replace(setup, incremental=replace(setup.incremental, seed=7)))

    assert len(context.display.steps) > trained  # type: ignore[attr-defined]


def test_an_unknown_method_is_refused() -> None:
    """The message lists the known methods."""
    with pytest.raises(ValueError, match="protoquad"):
        Setup(method="magic")
