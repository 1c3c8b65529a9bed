"""The blocks of the report: accuracy by session, ablations, and a verdict on each claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.paper.claims import Claim, largest_memory
from bench.paper.figures import Figures, Read, Results, mean, mean_curve, spread
from bench.paper.pages import Block, Heading, Paragraph, Plot, Table
from bench.paper.plan import OURS
from bench.paper.plots import accuracy_plot, bank_plot, feature_plot, memory_plot

SUMMARY: dict[str, Read] = {
    "last": lambda run: run.last,
    "average": lambda run: run.average,
    "PD": lambda run: run.drop,
    "BWT": lambda run: run.backward_transfer,
    "base": lambda run: run.base,
    "novel": lambda run: run.novel,
    "HM": lambda run: run.harmonic_mean,
}
ABLATED = {
    "loss": ("Loss", "loss"),
    "margins": ("Margins", "(α1, α2)"),
    "lambda": ("Update of old prototypes", "λ"),
    "fraction": ("Share of trainable parameters", "share"),
    "bank": ("Size of the bank", "B"),
}

SETTINGS = (
    "What was tuned: the settings of ours, on training images of the base classes of CUB-200. Those of all other "
    "methods are starting points that no tuning has chosen, unless --set changed them; the rate of f2m and how ranpac "
    "chooses its ridge were changed after a look at test images of the drawn shapes. The standard draw of cub200 is "
    "the published one. That of cifar100 and of miniimagenet is published too if its lists are in split/ of the data "
    "set's folder; otherwise, as for grocery, folder and shapes, it is a seeded draw of this project."
)


@dataclass(frozen=True)
class About:
    """What was measured."""

    dataset: str
    backbone: str
    draws: int
    commit: str | None


def blocks_of(results: Results, claims: Sequence[Claim], about: About) -> list[Block]:
    title = f"The paper's table, measured on {about.dataset} with {about.backbone}"
    intro = (
        f"Every method has the same backbone, shots and test images. Draws of the shots: {about.draws}; the first is "
        f"the standard one. ± is the standard deviation over the draws. The hyper-parameters of each method are in the "
        f"JSON file beside this page. Commit {about.commit or 'unknown'}."
    )
    return [
        Heading(title, 1),
        Paragraph(intro),
        Paragraph(SETTINGS),
        *_accuracy(results),
        *_ablations(results),
        *_memory(results),
        Heading("The claims of the paper"),
        Paragraph(
            "All methods learn from the same draws, so they are compared draw by draw: a difference counts beyond two "
            "standard errors of its mean. Ablations are run on the standard draw only: there a difference counts "
            "beyond the standard deviation of our method over the draws. What one draw cannot tell from chance is not "
            "measured."
        ),
        Table(("claim", "verdict", "figure"), [(one.claim, one.verdict, one.figure) for one in claims], words=True),
    ]


def _accuracy(results: Results) -> list[Block]:
    methods = results.methods
    curves = [(name, *(f"{value:.1f}" for value in mean_curve(runs))) for name, runs in methods.items()]
    sessions = range(1, len(curves[0]))
    return [
        Heading("Accuracy by session"),
        Plot("accuracy", accuracy_plot(methods), "Accuracy over all classes so far, mean over the draws"),
        Table(("method", *(f"S{number}" for number in sessions)), curves, strong=(OURS,)),
        Table(
            ("method", *SUMMARY, "seconds a session"),
            [(name, *_summary(runs)) for name, runs in methods.items()],
            strong=(OURS,),
        ),
        Paragraph(
            "last: after the last session. PD: first session less last. BWT: change of earlier classes through later "
            "sessions. base, novel: of their classes after the last session; HM: their harmonic mean. Seconds: of "
            "training, without the base session."
        ),
    ]


def _summary(runs: Sequence[Figures]) -> list[str]:
    def cell(read: Read) -> str:
        value = f"{mean(runs, read):.2f}"
        return f"{value} ± {spread(runs, read):.2f}" if len(runs) > 1 else value

    return [*(cell(read) for read in SUMMARY.values()), f"{mean(runs, lambda run: run.seconds_a_session):.1f}"]


def _ablations(results: Results) -> list[Block]:
    blocks: list[Block] = []
    for name, runs in results.ablations.items():
        title, column = ABLATED[name]
        rows = [
            (value, *(f"{read(run):.2f}" for read in SUMMARY.values()), _promoted(run)) for value, run in runs.items()
        ]
        blocks += [Heading(title, 3), Table((column, *SUMMARY, "promoted"), rows), *_ablation_plot(name, runs)]
    if not blocks:
        return []
    intro = (
        "On the standard draw, with the learning of today and everything else at its default. promoted: sessions whose "
        "training the gate has accepted; where it has accepted none, nothing that training depends on can matter."
    )
    return [Heading("Ablations"), Paragraph(intro), *blocks]


def _promoted(run: Figures) -> str:
    return "" if run.promoted is None else f"{run.promoted} of {len(run.accuracy) - 1}"


def _ablation_plot(name: str, runs: Mapping[str, Figures]) -> list[Block]:
    if name == "bank":
        return [
            Plot("bank", bank_plot(runs), "Accuracy (black) and backward transfer (red) against the size of the bank")
        ]
    maps = {value: run.features for value, run in runs.items() if run.features is not None}
    if name == "fraction" and maps:
        caption = (
            "Test images of five base classes and five of the last session, in two principal components. Separation: "
            "distance between class means over distance of images from their own"
        )
        return [Plot("features", feature_plot(maps), caption)]
    return []


def _memory(results: Results) -> list[Block]:
    largest = largest_memory(results)
    ours = {f"{OURS}, B = {size}": [run] for size, run in results.ablations.get("bank", {}).items()}
    rows = [
        (
            name,
            f"{runs[0].bytes_per_class:,}",
            f"{runs[0].bytes_per_class / largest:.2f}",
            f"{mean(runs, SUMMARY['last']):.2f}",
        )
        for name, runs in {**results.methods, **ours}.items()
    ]
    return [
        Heading("Memory"),
        Paragraph(
            "Bytes that a method keeps between sessions for each class, beside the network: vectors, statistics and "
            "images, three bytes a pixel. Ours keeps its shots and guard images, and they count."
        ),
        Plot("memory", memory_plot(results, largest), "Accuracy against memory, the largest of ours as 1"),
        Table(("method", "bytes per class", "largest of ours as 1", "last"), rows, strong=(OURS,)),
    ]
