"""Choosing settings without the test set."""

from dataclasses import replace

from bench.datasets import Picture, Session, load
from bench.fscil import Bench
from bench.methods import Setup
from bench.tuning import Trial, compare


def test_tuning_reads_no_test_picture(bench: Bench, setup: Setup) -> None:
    """Every picture read is a training picture of the base session; reading any other is an error."""
    shapes = load("shapes")
    read: set[str] = set()

    def watched(picture: Picture) -> Picture:
        def note() -> bytes:
            read.add(picture.key)
            return picture.read()

        return Picture(picture.key, picture.class_id, note)

    def locked(picture: Picture) -> Picture:
        def fail() -> bytes:
            raise AssertionError(f"the test picture {picture.key} was read")

        return Picture(picture.key, picture.class_id, fail)

    base = Session(tuple(map(watched, shapes.base.train)), tuple(map(locked, shapes.base.test)))
    candidates = [(("a",), setup), (("b",), replace(setup, method="ncm"))]

    trials = compare(bench, base, candidates, partitions=1, base_classes=6, tried=lambda _: None)

    assert {trial.settings for trial in trials} == {("a",), ("b",)}
    assert read
    assert read <= {picture.key for picture in base.train}


def test_the_best_candidate_comes_first(bench: Bench, setup: Setup) -> None:
    """Sorted by the mean of base and novel accuracy, and told one by one as they are tried."""
    base = load("shapes").base
    wrecked = replace(setup, gate=False, incremental=replace(setup.incremental, learning_rate=3.0))
    heard: list[Trial] = []

    trials = compare(
        bench,
        base,
        [(("wrecked",), wrecked), (("frozen",), replace(setup, method="ncm"))],
        partitions=1,
        base_classes=6,
        tried=heard.append,
    )

    assert [trial.settings for trial in heard] == [("wrecked",), ("frozen",)]
    assert [trial.settings for trial in trials] == [("frozen",), ("wrecked",)]
    assert trials[0].score == (trials[0].base + trials[0].novel) / 2
