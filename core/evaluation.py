"""The metrics of few-shot class-incremental learning, all in percent, from the predictions after each session."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SessionAnswers:
    """Truth and prediction for the test images of all classes up to a session."""

    truth: Tensor  # (n,) class ids
    predicted: Tensor  # (n,)

    def __post_init__(self) -> None:
        if self.truth.shape != self.predicted.shape or not len(self.truth):
            raise ValueError("every test image needs one prediction, and there must be at least one image")

    def accuracy(self, among: Sequence[int] | None = None) -> float | None:
        """Share of right answers over all images, or over those of the classes in `among`."""
        right = self.truth == self.predicted
        if among is not None:
            right = right[torch.isin(self.truth, torch.tensor(among, dtype=self.truth.dtype))]
        return 100 * float(right.double().mean()) if len(right) else None


@dataclass(frozen=True)
class Evaluation:
    """A whole run: accuracy by session, and the metrics derived from it."""

    accuracy: tuple[float, ...]
    average: float
    performance_drop: float  # PD: first session minus last
    backward_transfer: float  # BWT: change of earlier classes through later sessions; negative is forgetting
    base: float  # classes of the first session, after the last
    novel: float | None  # all other classes, after the last
    harmonic_mean: float | None  # of base and novel


def evaluate(answers: Sequence[SessionAnswers], classes: Sequence[Sequence[int]]) -> Evaluation:
    """All metrics of a run; session t added `classes[t]`, and `answers[t]` covers classes[0..t]."""
    accuracy = tuple(_known(after.accuracy()) for after in answers)
    last = answers[-1]
    base = _known(last.accuracy(classes[0]))
    novel = last.accuracy([class_id for later in classes[1 : len(answers)] for class_id in later])
    return Evaluation(
        accuracy=accuracy,
        average=sum(accuracy) / len(accuracy),
        performance_drop=accuracy[0] - accuracy[-1],
        backward_transfer=_backward_transfer(answers, classes),
        base=base,
        novel=novel,
        harmonic_mean=None if novel is None else harmonic_mean(base, novel),
    )


def harmonic_mean(first: float, second: float) -> float:
    return 2 * first * second / (first + second) if first + second else 0.0


def confusion(answers: SessionAnswers, class_ids: Sequence[int]) -> Tensor:
    """Counts (K, K): row the truth, column the prediction, both in the order of `class_ids`."""
    position = {class_id: row for row, class_id in enumerate(class_ids)}
    matrix = torch.zeros(len(class_ids), len(class_ids), dtype=torch.long)
    for truth, predicted in zip(answers.truth.tolist(), answers.predicted.tolist(), strict=True):
        matrix[position[truth], position[predicted]] += 1
    return matrix


def _backward_transfer(answers: Sequence[SessionAnswers], classes: Sequence[Sequence[int]]) -> float:
    """Accuracy on a session's classes after the last session minus right after their own, mean over earlier sessions.

    With more classes to confuse, it is negative even for a frozen network; compare methods on the same stream.
    """
    changes = [
        _known(answers[-1].accuracy(added)) - _known(after.accuracy(added))
        for after, added in zip(answers[:-1], classes, strict=False)
    ]
    return sum(changes) / len(changes) if changes else 0.0


def _known(value: float | None) -> float:
    if value is None:
        raise ValueError("a session has no test image of its own classes")
    return value
