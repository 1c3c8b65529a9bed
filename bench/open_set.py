"""Measures of an answer's certainty: can strangers be told from known images, and is the confidence what it says."""

import torch
from torch import Tensor

BINS = 15


def auroc(known: Tensor, strange: Tensor) -> float:
    """The probability that a stranger (m,) is farther away than an image of a known class (n,); ties count half."""
    below = torch.searchsorted(known.sort().values, strange.contiguous(), right=False)
    upto = torch.searchsorted(known.sort().values, strange.contiguous(), right=True)
    return float((below + upto).double().mean() / (2 * len(known)))


def calibration_error(probabilities: Tensor, own: Tensor) -> float:
    """Expected calibration error in 0..1: how far confidence (n, K) and accuracy are apart, mean over bins."""
    confidence, answers = probabilities.max(1)
    right = (answers == own).double()
    bins = (confidence * BINS).long().clamp(0, BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.double).index_add_(0, bins, right - confidence.double())
    return float(gaps.abs().sum() / len(own))
