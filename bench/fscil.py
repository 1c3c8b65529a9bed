"""One run of the few-shot class-incremental protocol: stream, backbone and method in, accuracies out.

After each session, every test image of the classes seen so far is classified among all of them. Results are kept in a
cache folder: an interrupted run continues where it stopped, and runs with the same base session train it once.
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
from bench.datasets import DatasetImage, Session, Stream
from bench.methods import METHODS, SessionContext, Setup
from bench.run_folder import Record, RunFolder, write_atomically
from core.backbones import Backbone
from core.base_session import base_session
from core.classifier import Certainty, NearestClassMean
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
    """Shows the progress of a run."""

    def counting(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A bar over `total` items; the callback takes the number of items just done."""

    def training(self, what: str) -> AbstractContextManager[Report]:
        """A bar over the steps of a session, with its losses."""

    def finished(self, session: int, accuracy: float, record: Record) -> None:
        """A session was trained and measured."""


@dataclass(frozen=True, eq=False)
class RunContext:
    """What all runs of one command share."""

    backbone: Backbone
    cache: Path
    data_key: str  # distinguishes data sets and their folders in the cache
    device: torch.device
    display: Display
    engine: Engine = "auto"


@dataclass(frozen=True, eq=False)
class RunResult:
    evaluation: Evaluation
    last: SessionAnswers  # after the last session
    seconds: tuple[float, ...]  # of training, by session; includes the trunk where activations were not cached
    verdicts: tuple[Verdict | None, ...]  # by incremental session


def run(context: RunContext, stream: Stream, setup: Setup, *, fresh: bool = False) -> RunResult:
    """Train and measure every session of the stream; `fresh` ignores what earlier runs have left."""
    folder = RunFolder(context.cache / "runs" / _run_key(context, stream, setup))
    if fresh:
        folder.records.clear()
    for number, record in enumerate(folder.records, start=1):
        _show(context, stream, number, record)
    if len(folder.records) < len(stream.sessions):
        _continue(context, stream, setup, folder, fresh=fresh)
    answers = [_answers(stream, number, record) for number, record in enumerate(folder.records, start=1)]
    return RunResult(
        evaluate(answers, [session.class_ids for session in stream.sessions]),
        answers[-1],
        tuple(record.seconds for record in folder.records),
        tuple(record.verdict for record in folder.records[1:]),
    )


def _answers(stream: Stream, sessions: int, record: Record) -> SessionAnswers:
    truth = [image.class_id for session in stream.sessions[:sessions] for image in session.test]
    return SessionAnswers(torch.tensor(truth), torch.tensor(record.predicted))


def _show(context: RunContext, stream: Stream, number: int, record: Record) -> None:
    context.display.finished(number, _answers(stream, number, record).accuracy() or 0.0, record)


def _continue(context: RunContext, stream: Stream, setup: Setup, folder: RunFolder, *, fresh: bool) -> None:
    store = _store(context, setup, setup.views)
    base, guard, spent = _base(context, stream.base, setup, store, fresh=fresh)
    tests = _Tests(context, setup, stream)
    state = folder.state() or base
    for number in range(len(folder.records) + 1, len(stream.sessions) + 1):
        verdict = None
        if number > 1:
            old_shots = _old_shots(context, stream, number, store)
            started = time.perf_counter()
            shots = _activations(context, store, stream.sessions[number - 1].train, "shots")
            backbone = with_weights(context.backbone, state.weights)
            with context.display.training(f"session {number}") as report:
                session = SessionContext(backbone, base, state, shots, old_shots, guard, setup, context.device, report)
                state, verdict = METHODS[setup.method](session)
            spent = time.perf_counter() - started
        record = Record(tests.answers(state, number), spent, verdict)
        folder.append(state, record, last=number == len(stream.sessions))
        _show(context, stream, number, record)


def _base(
    context: RunContext, session: Session, setup: Setup, store: ActivationStore, *, fresh: bool
) -> tuple[LearnerState, LabelledViews | None, float]:
    """The state after the base session, and the guard images; trained once for all runs with the same settings."""
    labels = torch.tensor([image.class_id for image in session.train])
    train_rows, guard_rows = hold_out(labels, setup.guard_per_class, setup.base.seed)
    started = time.perf_counter()
    views = _activations(context, store, session.train, "base images")
    guard = views.select(guard_rows).centre() if len(guard_rows) else None
    file = context.cache / "base" / f"{_base_key(context, session, setup)}.safetensors"
    clock = file.with_suffix(".seconds")
    if file.exists() and clock.exists() and not fresh:
        return from_bytes(file.read_bytes()), guard, float(clock.read_text())
    with context.display.training("base session") as report:
        training = views.select(train_rows)
        state = base_session(context.backbone, training, setup.base, device=context.device, report=report).state
    spent = time.perf_counter() - started
    write_atomically(file, to_bytes(state))
    write_atomically(clock, f"{spent:.1f}".encode())
    return state, guard, spent


def _old_shots(context: RunContext, stream: Stream, number: int, store: ActivationStore) -> LabelledViews | None:
    """The shots of all incremental sessions before session `number`."""
    before = [image for session in stream.sessions[1 : number - 1] for image in session.train]
    return _activations(context, store, before, "shots") if before else None


class _Tests:
    """The test images by session, and their features as long as the network stays the same."""

    def __init__(self, context: RunContext, setup: Setup, stream: Stream) -> None:
        self.context = context
        self.stream = stream
        self.scope = setup.base.scope
        self.store = _store(context, setup, 0)
        self.weights: Weights | None = None
        self.features: list[Tensor] = []
        self.forward: CompiledModule | None = None

    def answers(self, state: LearnerState, sessions: int) -> list[int]:
        """The nearest class of every test image of the first `sessions` sessions."""
        if self.weights is not state.weights:
            self.weights, self.features = state.weights, []
            self.forward = None
        for session in self.stream.sessions[len(self.features) : sessions]:
            views = _activations(self.context, self.store, session.test, "test images")
            self.features.append(torch.cat([self._features(some, state) for some in views.inputs[:, 0].split(64)]))
        return list(NearestClassMean(state.space, state.bank, Certainty()).nearest(torch.cat(self.features)))

    def _features(self, inputs: Tensor, state: LearnerState) -> Tensor:
        inputs = as_batch(inputs, torch.device("cpu"))
        if self.forward is None:
            part = trainable_part(with_weights(self.context.backbone, state.weights), self.scope)
            self.forward = compile_module(part, inputs[:1], device=self.context.device, engine=self.context.engine)
        return self.forward(inputs)


def activations(context: RunContext, setup: Setup, images: Sequence[DatasetImage], what: str) -> LabelledViews:
    """Inputs of the trained part of the backbone, in as many views as the setup defines."""
    return _activations(context, _store(context, setup, setup.views), images, what)


def _activations(
    context: RunContext, store: ActivationStore, images: Sequence[DatasetImage], what: str
) -> LabelledViews:
    missing = len(store.missing(images))
    if not missing:
        return store.views(images)
    with context.display.counting(what, missing) as done:
        return store.views(images, done)


def _store(context: RunContext, setup: Setup, augmented: int) -> ActivationStore:
    scope = setup.base.scope
    name = f"{_digest(_network_digest(context.backbone), context.data_key)}-{scope}-{augmented}"
    folder = context.cache / "activations" / name
    return ActivationStore(
        folder, context.backbone, augmented=augmented, scope=scope, device=context.device, engine=context.engine
    )


def _base_key(context: RunContext, session: Session, setup: Setup) -> str:
    keys = sorted(image.key for image in session.train)
    asked = (asdict(setup.base), setup.views, setup.guard_per_class, keys)
    return _digest(_network_digest(context.backbone), context.data_key, *asked)


def _run_key(context: RunContext, stream: Stream, setup: Setup) -> str:
    keys = [[image.key for image in session.train + session.test] for session in stream.sessions]
    return _digest(_network_digest(context.backbone), context.data_key, asdict(setup), keys)


def _network_digest(backbone: Backbone) -> str:
    """A digest of the weights and of the image transform: backbones of one name can differ in both."""
    digest = hashlib.sha256(backbone.name.encode())
    digest.update(centre_view(_SAMPLE, backbone.framing).numpy().tobytes())
    for tensor in backbone.state_dict().values():
        digest.update(tensor.flatten()[:64].numpy().tobytes())
    return digest.hexdigest()


_SAMPLE = Image.linear_gradient("L").resize((61, 47)).convert("RGB")


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
