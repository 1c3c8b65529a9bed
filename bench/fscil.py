"""One run of the few-shot class-incremental protocol: a stream, a backbone, a method → the figures.

After each session every test picture of the classes seen so far is classified among all of them. What was computed is
kept in a cache folder, so that a run that was stopped goes on, and runs that share a base session share it.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import Image
from torch import Tensor

from bench.activations import ActivationStore
from bench.datasets import Picture, Session, Stream
from bench.methods import METHODS, Setup, Situation
from bench.run_folder import Record, RunFolder, write_whole
from core.backbones import Backbone
from core.base_session import base_session
from core.classifier import NearestClassMean
from core.evaluation import Evaluation, SessionAnswers, evaluate
from core.guard import Verdict, hold_out
from core.images import centre_view
from core.progress import Report
from core.snapshot import from_bytes, to_bytes
from core.state import LearnerState, Weights, with_weights
from core.views import LabelledViews, as_batch, trainable_part
from engine.compiled_module import CompiledModule, Engine
from engine.graph_template import compile_module


class Display(Protocol):
    """What shows a run while it goes on."""

    def counting(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A bar over so many things; the callback is told how many more are done."""

    def training(self, what: str) -> AbstractContextManager[Report]:
        """A bar over a session's steps, with its losses."""

    def finished(self, session: int, accuracy: float, record: Record) -> None:
        """A session was learned and measured."""


@dataclass(frozen=True, eq=False)
class Bench:
    """Where and on what runs are made."""

    backbone: Backbone
    cache: Path
    data_key: str  # tells data sets and their folders apart in the cache
    device: torch.device
    display: Display
    engine: Engine = "auto"


@dataclass(frozen=True, eq=False)
class RunResult:
    evaluation: Evaluation
    last: SessionAnswers  # after the last session
    seconds: tuple[float, ...]  # of learning, by session, trunk included where it was not in the cache
    verdicts: tuple[Verdict | None, ...]  # by incremental session


def run(bench: Bench, stream: Stream, setup: Setup, *, fresh: bool = False) -> RunResult:
    """Learn and measure every session of the stream; `fresh` learns even what an earlier run has left."""
    folder = RunFolder(bench.cache / "runs" / _run_key(bench, stream, setup))
    if fresh:
        folder.records.clear()
    for number, record in enumerate(folder.records, start=1):
        _show(bench, stream, number, record)
    if len(folder.records) < len(stream.sessions):
        _go_on(bench, stream, setup, folder, fresh=fresh)
    answers = [_answers(stream, number, record) for number, record in enumerate(folder.records, start=1)]
    return RunResult(
        evaluate(answers, [session.class_ids for session in stream.sessions]),
        answers[-1],
        tuple(record.seconds for record in folder.records),
        tuple(record.verdict for record in folder.records[1:]),
    )


def _answers(stream: Stream, sessions: int, record: Record) -> SessionAnswers:
    truth = [picture.class_id for session in stream.sessions[:sessions] for picture in session.test]
    return SessionAnswers(torch.tensor(truth), torch.tensor(record.predicted))


def _show(bench: Bench, stream: Stream, number: int, record: Record) -> None:
    bench.display.finished(number, _answers(stream, number, record).accuracy() or 0.0, record)


def _go_on(bench: Bench, stream: Stream, setup: Setup, folder: RunFolder, *, fresh: bool) -> None:
    store = _store(bench, setup, setup.views)
    state, base_guard, spent = _base(bench, stream.base, setup, store, fresh=fresh)
    tests = _Tests(bench, setup, stream)
    state = folder.state() or state
    for number in range(len(folder.records) + 1, len(stream.sessions) + 1):
        verdict = None
        if number > 1:
            guard = _with_old_shots(bench, stream, number, base_guard, store)
            state, verdict, spent = _learn(bench, number, stream, state, guard, setup, store)
        record = Record(tests.answers(state, number), spent, verdict)
        folder.append(state, record, last=number == len(stream.sessions))
        _show(bench, stream, number, record)


def _base(
    bench: Bench, session: Session, setup: Setup, store: ActivationStore, *, fresh: bool
) -> tuple[LearnerState, LabelledViews | None, float]:
    """The state after the base session and the guard pictures; learned once for all runs that agree on it."""
    labels = torch.tensor([picture.class_id for picture in session.train])
    train_rows, guard_rows = hold_out(labels, setup.guard_per_class, setup.base.seed)
    started = time.perf_counter()
    views = _activations(bench, store, session.train, "base pictures")
    guard = views.select(guard_rows).centre() if len(guard_rows) else None
    file = bench.cache / "base" / f"{_base_key(bench, session, setup)}.safetensors"
    clock = file.with_suffix(".seconds")
    if file.exists() and clock.exists() and not fresh:
        return from_bytes(file.read_bytes()), guard, float(clock.read_text())
    with bench.display.training("base session") as report:
        training = views.select(train_rows)
        state = base_session(bench.backbone, training, setup.base, guard=guard, device=bench.device, report=report)
    spent = time.perf_counter() - started
    write_whole(file, to_bytes(state))
    write_whole(clock, f"{spent:.1f}".encode())
    return state, guard, spent


def _with_old_shots(
    bench: Bench, stream: Stream, number: int, guard: LabelledViews | None, store: ActivationStore
) -> LabelledViews | None:
    """The guard pictures for session `number`: those of the base classes, and the shots of the sessions between."""
    for session in stream.sessions[1 : number - 1]:
        shots = _activations(bench, store, session.train, "shots").centre()
        guard = guard.joined(shots) if guard else shots
    return guard


def _learn(
    bench: Bench,
    number: int,
    stream: Stream,
    parent: LearnerState,
    guard: LabelledViews | None,
    setup: Setup,
    store: ActivationStore,
) -> tuple[LearnerState, Verdict | None, float]:
    started = time.perf_counter()
    shots = _activations(bench, store, stream.sessions[number - 1].train, "shots")
    backbone = with_weights(bench.backbone, parent.weights)
    with bench.display.training(f"session {number}") as report:
        situation = Situation(backbone, parent, shots, guard, setup, bench.device, report)
        state, verdict = METHODS[setup.method](situation)
    return state, verdict, time.perf_counter() - started


class _Tests:
    """The test pictures by session, and their features for as long as the network stays the same."""

    def __init__(self, bench: Bench, setup: Setup, stream: Stream) -> None:
        self.bench = bench
        self.stream = stream
        self.scope = setup.base.scope
        self.store = _store(bench, setup, 0)
        self.weights: Weights | None = None
        self.features: list[Tensor] = []
        self.forward: CompiledModule | None = None

    def answers(self, state: LearnerState, sessions: int) -> list[int]:
        """The nearest class of every test picture of the first so many sessions."""
        if self.weights is not state.weights:
            self.weights, self.features = state.weights, []
            self.forward = None
        for session in self.stream.sessions[len(self.features) : sessions]:
            views = _activations(self.bench, self.store, session.test, "test pictures")
            self.features.append(torch.cat([self._features(some, state) for some in views.inputs[:, 0].split(64)]))
        return list(NearestClassMean(state.space, state.bank, state.certainty).nearest(torch.cat(self.features)))

    def _features(self, inputs: Tensor, state: LearnerState) -> Tensor:
        inputs = as_batch(inputs, torch.device("cpu"))
        if self.forward is None:
            part = trainable_part(with_weights(self.bench.backbone, state.weights), self.scope)
            bench = self.bench
            self.forward = compile_module(part, inputs[:1], device=bench.device, engine=bench.engine)
        return self.forward(inputs)


def activations(bench: Bench, setup: Setup, pictures: Sequence[Picture], what: str) -> LabelledViews:
    """What the trained part of the backbone takes as input, in as many views as the setup asks for."""
    return _activations(bench, _store(bench, setup, setup.views), pictures, what)


def _activations(bench: Bench, store: ActivationStore, pictures: Sequence[Picture], what: str) -> LabelledViews:
    missing = len(store.missing(pictures))
    if not missing:
        return store.views(pictures)
    with bench.display.counting(what, missing) as done:
        return store.views(pictures, done)


def _store(bench: Bench, setup: Setup, augmented: int) -> ActivationStore:
    scope = setup.base.scope
    name = f"{_digest(_network_mark(bench.backbone), bench.data_key)}-{scope}-{augmented}"
    folder = bench.cache / "activations" / name
    return ActivationStore(
        folder, bench.backbone, augmented=augmented, scope=scope, device=bench.device, engine=bench.engine
    )


def _base_key(bench: Bench, session: Session, setup: Setup) -> str:
    keys = sorted(picture.key for picture in session.train)
    asked = (asdict(setup.base), setup.views, setup.guard_per_class, keys)
    return _digest(_network_mark(bench.backbone), bench.data_key, *asked)


def _run_key(bench: Bench, stream: Stream, setup: Setup) -> str:
    keys = [[picture.key for picture in session.train + session.test] for session in stream.sessions]
    return _digest(_network_mark(bench.backbone), bench.data_key, asdict(setup), keys)


def _network_mark(backbone: Backbone) -> str:
    """Tells backbones of one name but other weights apart, or other eyes, by a sample of each tensor and of a view."""
    digest = hashlib.sha256(backbone.name.encode())
    digest.update(centre_view(_SAMPLE, backbone.framing).numpy().tobytes())
    for tensor in backbone.state_dict().values():
        digest.update(tensor.flatten()[:64].numpy().tobytes())
    return digest.hexdigest()


_SAMPLE = Image.linear_gradient("L").resize((61, 47)).convert("RGB")


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
