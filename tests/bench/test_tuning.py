"""Choosing settings without the test set."""

from dataclasses import replace

import pytest

from bench.datasets import DatasetImage, Session, load
from bench.fscil import RunContext
from bench.methods import Setup
from bench.tuning import Trial, compare


@pytest.mark.usefixtures("few_images")
def test_tuning_reads_no_test_image(context: RunContext, setup: Setup) -> None:
    """Every image read is a training image of the base session; reading any other is an error."""
    shapes = load("shapes")
    read: set[str] = set()

    def watched(image: DatasetImage) -> DatasetImage:
        def note() -> bytes:
            read.add(image.key)
            return image.read()

        return DatasetImage(image.key, image.class_id, note)

    def locked(image: DatasetImage) -> DatasetImage:
        def fail() -> bytes:
            raise AssertionError(f"the test image {image.key} was read")

        return DatasetImage(image.key, image.class_id, fail)

    base = Session(tuple(map(watched, shapes.base.train)), tuple(map(locked, shapes.base.test)))
    candidates = [(("a",), setup), (("b",), replace(setup, method="ncm"))]

    trials = compare(context, base, candidates, partitions=1, base_classes=6, report=lambda _: None)

    assert {trial.settings for trial in trials} == {("a",), ("b",)}
    assert read
    assert read <= {image.key for image in base.train}


@pytest.mark.usefixtures("few_images")
def test_the_best_candidate_comes_first(context: RunContext, setup: Setup) -> None:
    """Sorted by the mean of base and novel accuracy, and reported one by one."""
    base = load("shapes").base
    wrecked = replace(setup, gate=False, incremental=replace(setup.incremental, learning_rate=3.0))
    reported: list[Trial] = []

    trials = compare(
        context,
        base,
        [(("wrecked",), wrecked), (("frozen",), replace(setup, method="ncm"))],
        partitions=1,
        base_classes=6,
        report=reported.append,
    )

    assert [trial.settings for trial in reported] == [("wrecked",), ("frozen",)]
    assert [trial.settings for trial in trials] == [("frozen",), ("wrecked",)]
    assert trials[0].score == (trials[0].base + trials[0].novel) / 2
