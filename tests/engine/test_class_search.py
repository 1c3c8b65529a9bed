import gc
import threading
import weakref

import pytest
import torch

from engine.class_search import MANY, VERY_MANY, best_at_once, inner_products, scannable, smallest


@pytest.mark.parametrize("rows", [1, MANY - 1, MANY, 3 * MANY, VERY_MANY])
@pytest.mark.parametrize("queries", [1, 2, 8, 33])
def test_they_are_what_they_are_by_definition(rows: int, queries: int) -> None:
    generator = torch.Generator().manual_seed(rows + queries)
    some, many = (torch.randn(n, 24, generator=generator) for n in (queries, rows))
    exact = (some.double()[:, None] * many.double()[None]).sum(2)

    found = inner_products(some, many)

    assert found.shape == (queries, rows)
    assert found.is_contiguous()
    assert (found - exact).abs().max() < 1e-4


def test_rows_need_not_lie_one_after_another() -> None:
    many, some = torch.randn(2 * MANY, 16)[::2], torch.randn(16, 3).T
    assert torch.allclose(inner_products(some, many), some @ many.T, atol=1e-4)


def test_threads_do_not_get_each_others() -> None:
    many = torch.randn(MANY, 16)
    wrong: list[int] = []

    def ask(number: int) -> None:
        own = torch.full((number + 1, 16), float(number))
        same = [torch.allclose(inner_products(own, many), own @ many.T, atol=1e-3) for _ in range(50)]
        wrong.extend([number] * same.count(False))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_scannable_matrix_is_its_parts_below_each_other() -> None:
    parts = [torch.randn(n, 5) for n in (3, 0, 1)]
    found = scannable(parts)
    assert torch.equal(found, torch.cat(parts))
    assert found.is_contiguous()
    parts[0].zero_()
    assert found.abs().min() > 0, "a copy of its own"


@pytest.mark.parametrize("queries", [1, 3])
def test_an_answer_stays_when_another_is_asked_for(queries: int) -> None:
    many, some = torch.randn(MANY, 16), torch.randn(queries, 16)
    first = inner_products(some, many)
    kept = first.clone()
    inner_products(-some, many)
    assert torch.equal(first, kept)


def test_a_matrix_of_the_past_is_not_held_on_to() -> None:
    """It may be of half a gigabyte, and each thread's request would keep another."""
    many = torch.randn(MANY, 16).numpy()
    gone = weakref.ref(many)
    inner_products(torch.randn(2, 16), torch.from_numpy(many))
    del many
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("rows", "queries"), [(1, 1), (MANY - 1, 1), (MANY, 16), (VERY_MANY, 16)])
def test_among_many_rows_queries_are_worth_gathering(rows: int, queries: int) -> None:
    assert best_at_once(torch.rand(rows, 2)) == queries


@pytest.mark.parametrize("columns", [3, 255, 2_000, 2_048, 5_003, 40_000])
@pytest.mark.parametrize("count", [1, 3])
def test_the_smallest_of_many_are_the_smallest_of_all(columns: int, count: int) -> None:
    """Found by blocks, in the order and at the places that looking through everything would give."""
    rows = torch.rand(4, columns, generator=torch.Generator().manual_seed(columns))

    values, places = smallest(rows, count)

    expected = rows.sort(dim=1)
    assert torch.equal(values, expected.values[:, :count])
    assert torch.equal(places, expected.indices[:, :count])


@pytest.mark.parametrize("at", [[0, 1, 2], [255, 256, 4_999], [4_864, 4_865, 4_999]])
def test_the_smallest_may_lie_in_one_block_or_in_the_rest(at: list[int]) -> None:
    """The last columns make no whole block."""
    rows = torch.ones(1, 5_000)
    rows[0, at] = torch.tensor([0.1, 0.2, 0.3])

    values, places = smallest(rows, 3)

    assert places.tolist() == [at]
    assert values.tolist() == [pytest.approx([0.1, 0.2, 0.3])]


def test_as_many_as_there_are_blocks_may_be_asked_for() -> None:
    """A caller may want a hundred classes of two thousand."""
    rows = torch.rand(2, 2_600, generator=torch.Generator().manual_seed(1))

    values, _ = smallest(rows, 100)

    assert torch.equal(values, rows.sort(dim=1).values[:, :100])
