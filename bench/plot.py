"""Accuracy by session as a picture, ours above what was published."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no screen needed
import matplotlib.pyplot as plt

from bench.published import Published


def plot_accuracy(path: Path, name: str, accuracy: Sequence[float], published: Published | None, title: str) -> None:
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    sessions = list(range(1, len(accuracy) + 1))
    if published and published.fits(len(accuracy)):
        for rival, curve in published.curves.items():
            axes.plot(sessions, curve, linewidth=1, marker=".", alpha=0.7, label=f"{rival}, {curve[-1]:.1f}")
        for rival, (first, last, _) in published.ends.items():
            axes.plot([1, sessions[-1]], [first, last], "o", markersize=4, alpha=0.7, label=f"{rival}, {last:.1f}")
    axes.plot(sessions, accuracy, linewidth=2.5, marker="o", color="black", label=f"{name}, {accuracy[-1]:.1f}")
    axes.set(xlabel="session", ylabel="accuracy, %", title=title, xticks=sessions)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=2, title="method, last session", title_fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
