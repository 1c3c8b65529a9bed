"""The suite of faults in short, with a seed of its own; `make test-faults` plays it at length."""

from tests.faults import acts


def test_nothing_is_lost_whatever_fails() -> None:
    """Replicas, workers, Redis and PostgreSQL fail while classes are taught: what was acknowledged is there."""
    said: list[str] = []

    held = acts.deployed(rounds=2, seed=3, tell=said.append)

    assert held, "\n".join(said)


def test_a_full_disk_costs_nothing_but_time() -> None:
    """It is told as such, nothing is half there, and when there is room teaching goes on."""
    said: list[str] = []

    held = acts.embedded(rounds=2, seed=20, tell=said.append)

    assert held, "\n".join(said)


def test_a_worker_that_was_stopped_past_its_lease_changes_nothing() -> None:
    """Three workers, two models: each session is published once, one at a time for each model."""
    said: list[str] = []

    held = acts.contention(workers=3, models=2, sessions=6, pauses=1, seed=1, tell=said.append)

    assert held, "\n".join(said)
