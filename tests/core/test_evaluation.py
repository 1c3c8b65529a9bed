"""The figures of a run, on an example small enough to count by hand."""

import pytest
import torch

from core.evaluation import SessionAnswers, confusion, evaluate, harmonic_mean

CLASSES = [[60, 61], [7], [100, 8]]  # base, then two sessions; ids neither from zero nor in order


def answers(truth: list[int], predicted: list[int]) -> SessionAnswers:
    return SessionAnswers(torch.tensor(truth), torch.tensor(predicted))


# After the base session: 3 of 4 right.
FIRST = answers([60, 60, 61, 61], [60, 60, 61, 60])
# 60: 2 of 2, 61: 0 of 2, 7: 3 of 4. In all 5 of 8.
SECOND = answers([60, 60, 61, 61, 7, 7, 7, 7], [60, 60, 7, 60, 7, 7, 7, 61])
# 60: 1 of 2, 61: 1 of 2, 7: 1 of 4, 100: 0 of 1, 8: 1 of 1. In all 4 of 10; 2 of 4 base and 2 of 6 novel.
THIRD = answers([8, 60, 61, 7, 60, 61, 7, 7, 7, 100], [8, 60, 61, 7, 8, 100, 8, 60, 61, 60])


def test_accuracy_is_pooled_over_images() -> None:
    """A class with more images counts for more."""
    assert SECOND.accuracy() == pytest.approx(100 * 5 / 8)


def test_accuracy_among_some_classes_looks_at_their_images_only() -> None:
    """What other images were taken for does not count against them."""
    assert SECOND.accuracy([7]) == pytest.approx(75)
    assert SECOND.accuracy([61, 7]) == pytest.approx(50)
    assert SECOND.accuracy([7, 5]) == pytest.approx(75)


@pytest.mark.parametrize("among", [[], [5, 62]])
def test_accuracy_among_classes_without_images_is_not_known(among: list[int]) -> None:
    """None, rather than zero or a division by it."""
    assert SECOND.accuracy(among) is None


def test_a_run_is_summed_up_in_its_figures() -> None:
    """Every figure counted by hand."""
    evaluation = evaluate([FIRST, SECOND, THIRD], CLASSES)

    assert evaluation.accuracy == pytest.approx((75, 62.5, 40))
    assert evaluation.average == pytest.approx((75 + 62.5 + 40) / 3)
    assert evaluation.performance_drop == pytest.approx(35)
    assert evaluation.base == pytest.approx(50)
    assert evaluation.novel == pytest.approx(100 / 3)
    assert evaluation.harmonic_mean == pytest.approx(40)


def test_backward_transfer_compares_the_end_with_right_after() -> None:
    """Base fell from 75 to 50 and the second session's class from 75 to 25; the last has no later."""
    evaluation = evaluate([FIRST, SECOND, THIRD], CLASSES)

    assert evaluation.backward_transfer == pytest.approx((-25 - 50) / 2)


def test_backward_transfer_can_be_a_gain() -> None:
    """Above zero where later sessions helped earlier classes."""
    better = answers([60, 60, 61, 61, 7], [60, 60, 61, 61, 60])

    evaluation = evaluate([FIRST, better], CLASSES)

    assert evaluation.backward_transfer == pytest.approx(25)
    assert evaluation.performance_drop == pytest.approx(75 - 80)


def test_a_run_may_end_before_its_last_session() -> None:
    """Sessions that are planned and did not come leave the figures of those that did."""
    evaluation = evaluate([FIRST, SECOND], CLASSES)

    assert evaluation.novel == pytest.approx(75)
    assert evaluation.base == pytest.approx(50)
    assert evaluation.harmonic_mean == pytest.approx(60)


def test_a_base_session_alone_has_nothing_novel() -> None:
    """No novel classes, no harmonic mean, no drop and no transfer."""
    evaluation = evaluate([FIRST], CLASSES)

    assert (evaluation.novel, evaluation.harmonic_mean) == (None, None)
    assert (evaluation.performance_drop, evaluation.backward_transfer) == (0, 0)
    assert evaluation.base == evaluation.average == pytest.approx(75)


def test_a_session_without_images_of_its_own_is_refused() -> None:
    """Its figures would be made up."""
    with pytest.raises(ValueError, match="no test image"):
        evaluate([FIRST, FIRST, THIRD], CLASSES)


@pytest.mark.parametrize(
    ("base", "novel", "expected"), [(80, 20, 32), (20, 80, 32), (50, 50, 50), (90, 0, 0), (0, 0, 0)]
)
def test_the_harmonic_mean_is_drawn_to_the_lesser(base: float, novel: float, expected: float) -> None:
    """It is zero where either is, and divides by zero nowhere."""
    assert harmonic_mean(base, novel) == pytest.approx(expected)


def test_confusion_counts_truth_by_row_and_prediction_by_column() -> None:
    """In the order asked for, not in that of the ids."""
    matrix = confusion(THIRD, [60, 61, 7, 100, 8])

    assert matrix.tolist() == [
        [1, 0, 0, 0, 1],
        [0, 1, 0, 1, 0],
        [1, 1, 1, 0, 1],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
    ]


@pytest.mark.parametrize(("truth", "predicted"), [([1, 2], [1]), ([], []), ([1], [1, 1])])
def test_every_image_needs_one_prediction(truth: list[int], predicted: list[int]) -> None:
    """Answers that do not match their images are refused at once."""
    with pytest.raises(ValueError, match="one prediction"):
        answers(truth, predicted)
