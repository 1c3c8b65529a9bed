"""The plots of the report, as SVG text without anything that would be loaded from elsewhere."""

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl

mpl.use("Agg")  # no screen needed
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.feature_map import FeatureMap
from bench.paper.figures import Figures, Results, mean, mean_curve
from bench.paper.plan import OURS


def accuracy_plot(methods: Mapping[str, Sequence[Figures]]) -> str:
    """Accuracy by session, mean over the draws, ours in black."""
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    axes.set_prop_cycle(color=plt.get_cmap("tab20")(range(20)))
    sessions = range(1, len(next(iter(methods.values()))[0].accuracy) + 1)
    for name, runs in methods.items():
        curve = mean_curve(runs)
        style = {"color": "black", "linewidth": 2.5, "zorder": 5} if name == OURS else {"linewidth": 1}
        axes.plot(sessions, curve, marker=".", label=f"{name}, {curve[-1]:.1f}", **style)
    axes.set(xlabel="session", ylabel="accuracy, %", xticks=list(sessions))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, title="method, last session", loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return _svg(figure, "accuracy")


def bank_plot(runs: Mapping[str, Figures]) -> str:
    """Accuracy after the last session and BWT against B."""
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    sizes = sorted(runs, key=int)
    places = [int(size) for size in sizes]
    axes.plot(places, [runs[size].last for size in sizes], marker="o", color="black")
    axes.set(xlabel="B, copies of a prototype", ylabel="accuracy after the last session, %")
    other = axes.twinx()
    other.plot(places, [runs[size].backward_transfer for size in sizes], marker="s", color="tab:red")
    other.set_ylabel("BWT, points", color="tab:red")
    axes.grid(alpha=0.3)
    return _svg(figure, "bank")


def memory_plot(results: Results, largest: int) -> str:
    """Accuracy after the last session against memory, with the largest of ours as 1."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, runs in results.methods.items():
        _dot(axes, name, runs[0].bytes_per_class / largest, mean(runs, lambda run: run.last), ours=name == OURS)
    for size, run in results.ablations.get("bank", {}).items():
        _dot(axes, f"B = {size}", run.bytes_per_class / largest, run.last, ours=True)
    axes.set(xscale="log", xlabel="bytes per class, the largest of ours as 1", ylabel="accuracy, last session, %")
    axes.grid(alpha=0.3)
    return _svg(figure, "memory")


def feature_plot(maps: Mapping[str, FeatureMap]) -> str:
    """Test images of some classes for each share of trainable parameters, in two principal components."""
    columns = min(4, len(maps))
    rows = -(-len(maps) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(2.6 * columns, 2.6 * rows), squeeze=False, layout="constrained")
    for axes in grid.flat:
        axes.axis("off")
    for axes, (name, one) in zip(grid.flat, maps.items(), strict=False):
        kinds = sorted(set(one.class_ids))
        colours = [kinds.index(class_id) for class_id in one.class_ids]
        axes.scatter(*zip(*one.points, strict=True), c=colours, cmap="tab10", s=5, linewidths=0)
        axes.set_title(f"{100 * float(name):g} %, separation {one.separation:.2f}", fontsize=8)
    return _svg(figure, "features")


def _dot(axes: Axes, name: str, x: float, y: float, *, ours: bool) -> None:
    axes.plot([x], [y], "o", color="black" if ours else "tab:blue")
    axes.annotate(name, (x, y), textcoords="offset points", xytext=(4, 3), fontsize=7)


def _svg(figure: Figure, salt: str) -> str:
    written = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):  # the salt keeps ids of two plots apart
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    plt.close(figure)
    text = written.getvalue()
    return text[text.index("<svg") :]
