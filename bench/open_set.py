"""Measures of an answer's certainty: can strangers be told from known images, and is the confidence what it says."""

from collections.abc import Sequence

import torch
from torch import Tensor

BINS = 15


def auroc(known: Tensor, strange: Tensor) -> float:
    """The probability that a stranger (m,) is farther away than an image of a known class (n,); ties count half."""
    below = torch.searchsorted(known.sort().values, strange.contiguous(), right=False)
    upto = torch.searchsorted(known.sort().values, strange.contiguous(), right=True)
    return float((below + upto).double().mean() / (2 * len(known)))


def calibration_gaps(probabilities: Tensor, own: Tensor) -> Tensor:
    """By bins of confidence (n, K), how far accuracy is above it, as shares of all images (BINS,)."""
    confidence, answers = probabilities.max(1)
    right = (answers == own).double()
    bins = (confidence * BINS).long().clamp(0, BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.double).index_add_(0, bins, right - confidence.double())
    return gaps / len(own)


def calibration_error(gaps: Sequence[Sequence[float]]) -> float:
    """Expected calibration error in 0..1 over the images of several draws of equal size.

    Bins are filled by all draws together: the few images of one draw err by chance, even if the confidence is right.
    """
    return float(torch.tensor(gaps, dtype=torch.double).mean(0).abs().sum())
