"""One run of the few-shot class-incremental protocol: stream, backbone and method in, accuracies out.

After each session, every test image of the classes seen so far is classified among all of them. Results are kept in a
cache folder: an interrupted run continues where it stopped, and runs with the same base session train it once.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import Image
from torch import Tensor

import core
from bench import methods
from bench.activations import ActivationStore
from bench.datasets import DatasetImage, Session, Stream
from bench.feature_map import FeatureMap, feature_map
from bench.methods import METHODS, Outcome, SessionContext, Setup
from bench.methods.memory import bytes_per_class
from bench.run_folder import EpochFile, Record, RunFolder, write_atomically
from core.backbones import Backbone
from core.bank import PrototypeBank
from core.base_session import BaseConfig, base_session
from core.base_training import cross_entropy
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

FURTHER = 0.25  # of the epochs and of the rates of a base session


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
    seconds: tuple[float, ...]  # of training, by session; of the base session with the trunk where nothing was cached
    verdicts: tuple[Verdict | None, ...]  # by incremental session
    bytes_per_class: int  # that the method keeps between sessions
    features: FeatureMap | None = None  # of some classes, after the last session


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
        bytes_per_class(setup, context.backbone, stream),
        folder.records[-1].features,
    )


def _answers(stream: Stream, sessions: int, record: Record) -> SessionAnswers:
    truth = [image.class_id for session in stream.sessions[:sessions] for image in session.test]
    return SessionAnswers(torch.tensor(truth), torch.tensor(record.predicted))


def _show(context: RunContext, stream: Stream, number: int, record: Record) -> None:
    context.display.finished(number, _answers(stream, number, record).accuracy() or 0.0, record)


def _continue(context: RunContext, stream: Stream, setup: Setup, folder: RunFolder, *, fresh: bool) -> None:
    method, store = METHODS[setup.method], _store(context, setup, setup.views)
    base = _base(context, stream.base, setup, store, fresh=fresh)
    tests = _Tests(context, setup, stream)
    outcome, spent = Outcome(folder.state() or base.state), base.seconds
    for number in range(len(folder.records) + 1, len(stream.sessions) + 1):
        if number > 1 or method.answers_at_once:
            old_shots = _old_shots(context, stream, number, store)
            shots = base.images.select(torch.arange(0))
            if number > 1:
                shots = _activations(context, store, stream.sessions[number - 1].train, "shots")
            started = time.perf_counter()  # after the trunk, whose activations only the first of all runs computes
            with context.display.training(f"session {number}") as report:
                outcome = method.learn(_session(context, setup, base, outcome.state, shots, old_shots, report))
            spent = time.perf_counter() - started + (spent if number == 1 else 0.0)
        last = number == len(stream.sessions)
        features = tests.feature_map(outcome.state) if last else None
        record = Record(tests.answers(outcome, number), spent, outcome.verdict, features)
        folder.append(outcome.state, record, last=last)
        _show(context, stream, number, record)


@dataclass(frozen=True, eq=False)
class _Base:
    state: LearnerState
    images: LabelledViews  # that it was trained on
    guard: LabelledViews | None
    seconds: float


def _session(
    context: RunContext,
    setup: Setup,
    base: _Base,
    state: LearnerState,
    shots: LabelledViews,
    old_shots: LabelledViews | None,
    report: Report,
) -> SessionContext:
    backbone = with_weights(context.backbone, state.weights)
    given = (backbone, base.state, state, shots, old_shots, base.guard, setup, context.device, report)
    return SessionContext(*given, base_images=base.images, pretrained=context.backbone)


def _base(context: RunContext, session: Session, setup: Setup, store: ActivationStore, *, fresh: bool) -> _Base:
    """The state after the base session, and its images."""
    labels = torch.tensor([image.class_id for image in session.train])
    train_rows, guard_rows = hold_out(labels, setup.guard_per_class, setup.base.seed)
    started = time.perf_counter()
    guard_images, images = ([session.train[row] for row in rows.tolist()] for rows in (guard_rows, train_rows))
    guard = _activations(context, store, guard_images, "guard images").centre() if guard_images else None
    training = _activations(context, store, images, "base images")  # read once: a copy would not fit every machine
    state, spent = _base_state(context, session, setup, training, started, fresh=fresh)
    return _Base(_with_copies(state, setup.base.copies), training, guard, spent)


def _base_state(
    context: RunContext, session: Session, setup: Setup, training: LabelledViews, started: float, *, fresh: bool
) -> tuple[LearnerState, float]:
    """The state and its seconds; trained once for all runs with the same settings."""
    file = context.cache / "base" / f"{_base_key(context, session, setup)}.safetensors"
    clock = file.with_suffix(".seconds")
    if not fresh and file.exists() and clock.exists():
        return from_bytes(file.read_bytes()), float(clock.read_text())
    method, backbone, config, before = METHODS[setup.method], context.backbone, setup.base, 0.0
    make = method.objective
    if make and config.epochs:
        shared, before = _base_state(context, session, replace(setup, method="ncm"), training, started, fresh=fresh)
        backbone, config = with_weights(backbone, shared.weights), further(config)
        backbone.pretrained = True
        started = time.perf_counter()
    epochs = EpochFile(file.with_suffix(".epochs"), started)
    if fresh:
        epochs.remove()
    with context.display.training("base session") as report:
        state = base_session(
            backbone,
            training,
            config,
            device=context.device,
            report=report,
            objective=make(replace(method.defaults, **setup.read_by_objective)) if make else cross_entropy,
            checkpoint=epochs,
        ).state
    spent = before + epochs.seconds()
    write_atomically(file, to_bytes(state))
    write_atomically(clock, f"{spent:.1f}".encode())
    epochs.remove()
    return state, spent


def further(config: BaseConfig) -> BaseConfig:
    """For a method whose idea is in the base session: a gentler one that goes on from the one that all share."""
    return replace(
        config,
        epochs=max(1, round(config.epochs * FURTHER)),
        learning_rate=config.learning_rate * FURTHER,
        head_rate=config.head_rate * FURTHER,
        smallest=1.0,
        blend=1.0,
    )


def _with_copies(state: LearnerState, copies: int) -> LearnerState:
    """With room for so many copies in its bank, which has one of each class after the base session."""
    bank = state.bank
    room = PrototypeBank.empty(bank.dim, copies).with_classes(bank.class_ids, bank.prototypes, bank.shots.tolist())
    return replace(state, bank=room)


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

    def answers(self, outcome: Outcome, sessions: int) -> list[int]:
        """The class of every test image of the first `sessions` sessions."""
        state, features = outcome.state, torch.cat(self._of_sessions(outcome.state, sessions))
        if outcome.nearest is not None:
            return list(outcome.nearest(features))
        return list(NearestClassMean(state.space, state.bank, Certainty()).nearest(features))

    def feature_map(self, state: LearnerState) -> FeatureMap:
        """Of test images of all sessions, as the state sees them."""
        sessions = self.stream.sessions
        features = self._of_sessions(state, len(sessions))
        labels = [torch.tensor([image.class_id for image in session.test]) for session in sessions]
        old, new = (0, len(sessions) - 1) if len(sessions) > 1 else (0, 0)
        embeddings = [state.space.comparable(state.space.embed(features[place])) for place in (old, new)]
        return feature_map(*zip(embeddings, (labels[old], labels[new]), strict=True))

    def _of_sessions(self, state: LearnerState, sessions: int) -> list[Tensor]:
        if self.weights is not state.weights:
            self.weights, self.features = state.weights, []
            self.forward = None
        for session in self.stream.sessions[len(self.features) : sessions]:
            views = _activations(self.context, self.store, session.test, "test images")
            self.features.append(torch.cat([self._features(some, state) for some in views.inputs[:, 0].split(64)]))
        return self.features[:sessions]

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
    trained = asdict(replace(setup.base, copies=BaseConfig.copies))  # the bank's size does not change the training
    asked: tuple[Any, ...] = (trained, setup.views, setup.guard_per_class, keys)
    if METHODS[setup.method].objective:  # its base session goes on with an objective of its own
        asked = (*asked, setup.method, setup.read_by_objective)
    return _digest(_network_digest(context.backbone), context.data_key, *asked)


def _run_key(context: RunContext, stream: Stream, setup: Setup) -> str:
    keys = [[image.key for image in session.train + session.test] for session in stream.sessions]
    values = asdict(setup.values)  # a changed default is another run
    network = _network_digest(context.backbone)
    return _digest(network, context.data_key, asdict(setup), values, keys, _learning_digest())


@cache
def _learning_digest() -> str:
    """Of the code that learns: figures of other code must not be taken for those of this commit."""
    digest = hashlib.sha256()
    for folder in (Path(core.__file__).parent, Path(methods.__file__).parent):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


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
