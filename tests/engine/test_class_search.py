"""Searching many classes gives what comparing with each of them would give."""

import gc
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from core.bank import ClassId
from core.classifier import Certainty, Learned, NearestClassMean
from core.space import Space
from engine.class_search import GATHERED, MANY, VERY_MANY, ClassSearch
from learners.loading import Means

SPACE = Space("euclidean")
DIM = 16


def search(prototypes: Tensor) -> ClassSearch:
    ids = tuple(ClassId(number) for number in range(len(prototypes)))
    return ClassSearch(SPACE, Means(ids, torch.ones(len(ids), dtype=torch.long), prototypes), Certainty())


def random(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("classes", [1, MANY, VERY_MANY - 1, VERY_MANY])
@pytest.mark.parametrize("queries", [1, 2, 17])
def test_distances_are_what_they_are_by_definition(classes: int, queries: int) -> None:
    many, some = random(classes), random(queries, seed=1)

    found = search(many).distances(some)

    assert found.shape == (queries, classes)
    assert (found - torch.cdist(some.double(), many.double())).abs().max() < 1e-3


@pytest.mark.parametrize("classes", [10, VERY_MANY])
def test_predictions_are_those_of_the_plain_classifier(classes: int) -> None:
    many, some = random(classes), random(3, seed=1)
    fast = search(many)
    plain = NearestClassMean(SPACE, fast, Certainty())

    found, expected = fast.predict(some, 5), plain.predict(some, 5)

    for one, other in zip(found, expected, strict=True):
        assert [candidate.class_id for candidate in one.top] == [candidate.class_id for candidate in other.top]
        for mine, theirs in zip(one.top, other.top, strict=True):
            assert mine.distance == pytest.approx(theirs.distance, abs=1e-3)
            assert mine.confidence == pytest.approx(theirs.confidence, abs=1e-3)


def test_it_stays_a_class_search_when_a_class_is_taught() -> None:
    changed = search(random(3)).changed({ClassId(7): Learned(torch.zeros(DIM), 5)}, Certainty())

    assert isinstance(changed, ClassSearch)
    assert changed.nearest(torch.zeros(1, DIM)) == [7]


@pytest.mark.parametrize(("classes", "gathered"), [(1, 1), (MANY - 1, 1), (MANY, GATHERED), (VERY_MANY, GATHERED)])
def test_features_are_worth_gathering_where_there_are_many_classes(classes: int, gathered: int) -> None:
    assert search(random(classes)).preferred_batch == gathered


@pytest.fixture(scope="module")
def many() -> Tensor:
    return random(VERY_MANY)


def in_threads(work: Callable[[int], None], count: int = 4) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_do_not_get_the_answers_of_others(many: Tensor) -> None:
    own, wrong = search(many), []

    def ask(number: int) -> None:
        queries = torch.full((number + 1, DIM), float(number))
        expected = torch.cdist(queries, many)
        if not all(torch.allclose(own.distances(queries), expected, atol=1e-2) for _ in range(10)):
            wrong.append(number)

    in_threads(ask)

    assert not wrong


def test_an_answer_is_kept_when_the_next_is_asked_for(many: Tensor) -> None:
    own = search(many)
    first = own.distances(random(2, seed=1))
    kept = first.clone()
    own.distances(random(2, seed=2))

    assert torch.equal(first, kept)


def test_the_prototypes_of_a_dropped_version_are_freed(many: Tensor) -> None:
    """They may have half a gigabyte, and the request of each thread could hold others."""
    own = search(many)
    memory = own.prototypes.numpy()
    own.prototypes = torch.from_numpy(memory)
    gone = weakref.ref(memory)
    own.predict(random(2), 5)
    del own, memory
    gc.collect()

    assert gone() is None
