"""Plots: accuracy by session beside published results, and latency against load."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no screen needed
import matplotlib.pyplot as plt

from bench.published import Published


def plot_latency(path: Path, shares: Sequence[float], rate: float, p50: Sequence[float], p99: Sequence[float]) -> None:
    """Latency against load; `rate`: requests per second at which the service is saturated."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    loads = [share * rate for share in shares]
    axes.plot(loads, p99, marker="o", color="tab:red", label="p99")
    axes.plot(loads, p50, marker="o", color="black", label="p50")
    axes.axvline(rate, linestyle="--", color="grey", label=f"saturated: {rate:.0f}/s")
    axes.set(xlabel="requests per second, one image each", ylabel="latency, ms", title="latency against load", ylim=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_accuracy(path: Path, name: str, accuracy: Sequence[float], published: Published | None, title: str) -> None:
    figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
    axes.set_prop_cycle(color=plt.get_cmap("tab20")(range(20)))
    sessions = list(range(1, len(accuracy) + 1))
    axes.plot(
        sessions, accuracy, linewidth=2.5, marker="o", color="black", label=f"{name}, {accuracy[-1]:.1f}", zorder=5
    )
    if published and published.fits(len(accuracy)):
        for rival, curve in published.curves.items():
            axes.plot(sessions, curve, linewidth=1, marker=".", label=f"{rival}, {curve[-1]:.1f}")
        for rival, (first, last, _) in published.ends.items():
            axes.plot([1, sessions[-1]], [first, last], "D", markersize=4, label=f"{rival}, {last:.1f}")
    axes.set(xlabel="session", ylabel="accuracy, %", title=title, xticks=sessions)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, title="method, last session", loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    figure.savefig(path, dpi=120)
    plt.close(figure)
