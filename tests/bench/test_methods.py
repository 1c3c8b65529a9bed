"""Every method keeps to its contract, and the parts that methods share are recomputed."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bench.datasets import Stream
from bench.fscil import RunContext, RunResult, run
from bench.methods import METHODS, SessionContext, Setup
from bench.methods.contract import Rival
from bench.methods.exemplars import balanced, base_exemplars, herd
from bench.methods.f2m import BOUND
from bench.methods.fsll import MARGIN, triplets
from bench.methods.grid import CANDIDATES, candidates
from bench.methods.head_training import Batch, Network, distillation, starting_network, targets_of, train_head
from bench.methods.lucir import less_forget
from bench.methods.memory import bytes_per_class
from bench.methods.ranpac import ridge_weights
from bench.methods.topic import neural_gas
from bench.overrides import override
from core.base_session import base_session
from core.progress import Progress
from core.state import with_weights
from core.views import CPU, LabelledViews
from tests.bench.conftest import RecordingDisplay, small_network

CHANCE = 100 * (1 / 4 + 1 / 6 + 1 / 8) / 3  # mean over the three sessions of the small stream
SMALL = Rival(epochs=2, batch=16, exemplars=3, width=64)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """One cache for all methods: activations and base session are computed once."""
    torch.manual_seed(0)
    cache = tmp_path_factory.mktemp("cache")
    return RunContext(small_network(), cache, "shapes", CPU, RecordingDisplay(), engine="torch")


def setup_of(setup: Setup, method: str) -> Setup:
    return replace(setup, method=method, rival=SMALL)


def small_session(setup: Setup, method: str) -> SessionContext:
    """Four base classes and two new ones of noise around a colour of their own, without any cache."""
    torch.manual_seed(1)
    network, generator = small_network(), torch.Generator().manual_seed(2)

    def images(labels: list[int], each: int) -> LabelledViews:
        rows = torch.tensor(labels).repeat_interleave(each)
        colours = torch.rand(10, 32, 8, 8, generator=torch.Generator().manual_seed(5))[rows]
        shape = network.trunk(network.framing.blank()).shape[2:]
        colours = F.interpolate(colours, tuple(shape))
        noise = torch.rand(len(rows), 3, *colours.shape[1:], generator=generator)
        return LabelledViews(colours[:, None] + 0.5 * noise, rows)

    chosen = setup_of(setup, method)
    base_images = images([0, 1, 2, 3], 6)
    state = base_session(network, base_images, replace(chosen.base, epochs=0)).state
    shots, steps = images([5, 7], 3), list[Progress]()
    given = (network, state, state, shots, None, None, chosen, CPU, steps.append)
    return SessionContext(*given, base_images=base_images, pretrained=network)


def tensors(session: SessionContext) -> Iterator[torch.Tensor]:
    yield from session.backbone.state_dict().values()
    yield session.state.bank.copies
    yield session.shots.inputs
    yield session.all_base_images.inputs


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_better_than_chance(shared: RunContext, stream: Stream, setup: Setup, method: str) -> None:
    """One accuracy for each session, over all classes so far, and every answer is a class that was taught."""
    result = run(shared, stream, setup_of(setup, method))

    assert len(result.evaluation.accuracy) == len(result.seconds) == 3
    assert result.evaluation.average > 1.3 * CHANCE
    assert {c for session in stream.sessions for c in session.class_ids} >= set(result.last.predicted.tolist())
    assert len(result.last.truth) == sum(len(session.test) for session in stream.sessions)
    assert result.features is not None
    assert len(result.features.points) == len(result.features.class_ids) > 0


@pytest.mark.parametrize("method", METHODS)
def test_a_method_changes_nothing_and_repeats_itself(setup: Setup, method: str) -> None:
    """What it is given stays bit for bit; the same seed gives the same state; the bank has old and new classes."""
    session = small_session(setup, method)
    before = [tensor.clone() for tensor in tensors(session)]

    one, other = (METHODS[method].learn(session) for _ in range(2))

    assert all(torch.equal(was, now) for was, now in zip(before, tensors(session), strict=True))
    assert one.state.bank.class_ids == (0, 1, 2, 3, 5, 7)
    assert torch.equal(one.state.bank.prototypes, other.state.bank.prototypes)
    assert one.state.weights.keys() == other.state.weights.keys()
    assert all(torch.equal(one.state.weights[name], other.state.weights[name]) for name in one.state.weights)
    if one.nearest is not None and other.nearest is not None:
        features = torch.rand(20, session.backbone.dim, generator=torch.Generator().manual_seed(3))
        assert one.nearest(features) == other.nearest(features)


@pytest.mark.parametrize("method", ["icarl", "topic", "fsll", "ranpac"])
def test_a_method_also_trains_the_whole_network(setup: Setup, method: str) -> None:
    """Images instead of activations, as on CIFAR-100 from scratch: trained weights are those of the whole backbone."""
    session = small_session(setup, method)
    whole = replace(session.setup, incremental=replace(setup.incremental, scope="all"), rival=replace(SMALL, epochs=1))

    def pixels(views: LabelledViews) -> LabelledViews:
        generator = torch.Generator().manual_seed(len(views))
        images = torch.randint(0, 256, (len(views), 2, 3, 32, 32), dtype=torch.uint8, generator=generator)
        return LabelledViews(images, views.labels)

    given = replace(session, setup=whole, shots=pixels(session.shots), base_images=pixels(session.all_base_images))
    state = METHODS[method].learn(given).state

    assert len(state.bank) == 6
    assert set(state.weights) == (set() if method == "ranpac" else set(session.backbone.state_dict()))


class Stopped(Exception): ...


@pytest.mark.parametrize("method", ["ranpac", "icarl"])
def test_a_method_with_more_than_a_bank_resumes(shared: RunContext, stream: Stream, setup: Setup, method: str) -> None:
    """Stopped after the second session, it ends as the run that was not: what it needs is computed from the images."""
    chosen = replace(setup_of(setup, method), incremental=replace(setup.incremental, seed=3))
    whole = run(shared, stream, chosen)

    class Stopping(RecordingDisplay):
        def finished(self, session: int, *_: object) -> None:
            if session == 2:
                raise Stopped

    with pytest.raises(Stopped):
        run(replace(shared, display=Stopping()), stream, chosen, fresh=True)
    display = RecordingDisplay()
    resumed = run(replace(shared, display=display), stream, chosen)

    assert display.sessions == [1, 2, 3]
    assert resumed.evaluation == whole.evaluation


@pytest.mark.parametrize("method", ["f2m", "closer"])
def test_a_base_session_goes_on_from_the_shared_one(
    shared: RunContext, stream: Stream, setup: Setup, method: str
) -> None:
    """It is trained for this method and its strength for a while, and used again whatever else is set."""

    def steps(chosen: Setup) -> int:
        display = RecordingDisplay()
        run(replace(shared, display=display), stream, chosen, fresh=False)
        return len(display.steps)

    plain = replace(setup_of(setup, "ncm"), base=replace(setup.base, seed=len(method), epochs=8))  # nobody else has it
    own = replace(plain, method=method)
    frozen = replace(own, rival=replace(SMALL, epochs=0, strength=2.0))

    whole = steps(plain)

    assert steps(replace(plain, method="teen")) == 0
    assert steps(frozen) == whole / 4
    assert steps(replace(frozen, incremental=replace(setup.incremental, seed=9))) == 0
    assert steps(replace(frozen, rival=replace(frozen.rival, rate=0.5, batch=8))) == 0
    assert steps(replace(frozen, rival=replace(frozen.rival, strength=1.0))) == whole / 4


def test_herding_is_the_greedy_mean() -> None:
    """Recomputed in NumPy: each next vector brings the mean of those chosen nearest to the mean of all."""
    vectors = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    rows, chosen = vectors.double().numpy(), list[int]()
    for _ in range(6):
        left = [row for row in range(12) if row not in chosen]
        chosen.append(min(left, key=lambda row: np.linalg.norm(rows[[*chosen, row]].mean(0) - rows.mean(0))))

    assert herd(vectors, 6) == chosen
    assert sorted(herd(vectors, 50)) == list(range(12))


def test_exemplars_are_images_of_their_class(setup: Setup) -> None:
    """So many of each, always the same ones, and the best are a prefix of more."""
    session = small_session(setup, "icarl")

    two, four = base_exemplars(session, 2), base_exemplars(session, 4)

    assert two.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert torch.equal(balanced(four, 2).inputs, two.inputs)


def test_teen_moves_a_mean_towards_all_base_classes(setup: Setup) -> None:
    """By hand, one class at a time, with base classes of six images: half of the way at strength 1."""
    session = small_session(setup, "teen")
    means = METHODS["ncm"].learn(session).state.bank.prototypes[4:]

    moved = METHODS["teen"].learn(session).state.bank.prototypes[4:]

    base = [prototype / prototype.norm() for prototype in session.base.bank.prototypes]
    for mean, found in zip(means, moved, strict=True):
        direction = mean / mean.norm()
        weights = [torch.exp(16 * direction @ one) for one in base]
        towards = sum(weight * one for weight, one in zip(weights, base, strict=True)) / sum(weights)
        assert torch.allclose(found, mean.norm() * (direction + towards) / 2, atol=1e-5)
        assert not torch.allclose(found, mean, atol=1e-3)


def test_the_ridge_is_that_of_least_squares() -> None:
    """Solved as a least-squares problem with a row for each penalised weight."""
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(30, 7, generator=generator), torch.arange(30) % 3
    stacked = torch.cat([inputs, 2.0**0.5 * torch.eye(7)]).double()
    wanted = torch.cat([F.one_hot(targets, 3), torch.zeros(7, 3, dtype=torch.long)]).double()

    weights = ridge_weights(inputs, targets, 2.0, 3)

    assert torch.allclose(weights.double(), torch.linalg.lstsq(stacked, wanted).solution, atol=1e-5)


def test_a_neural_gas_finds_the_clusters() -> None:
    """Three nodes for three clusters, each with a vector of its cluster."""
    centres = 10 * torch.eye(3)
    vectors = centres.repeat_interleave(9, 0) + 0.1 * torch.randn(27, 3, generator=torch.Generator().manual_seed(0))

    gas = neural_gas(vectors, 3, seed=1)

    assert torch.cdist(centres, gas.nodes).amin(1).max() < 0.2
    assert torch.cdist(vectors[gas.nearest], gas.nodes).diagonal().max() < 0.4


def test_triplets_take_the_hardest_images() -> None:
    """By hand: two classes on the axes, one image of the first half-way to the second."""
    half = 0.5**0.5
    vectors = torch.tensor([[1.0, 0.0], [half, half], [0.0, 1.0], [0.0, 1.0]])

    loss = float(triplets(vectors, torch.tensor([0, 0, 1, 1])))

    images = [MARGIN - half + 0.0, MARGIN - half + half, MARGIN - 1 + half, MARGIN - 1 + half]
    assert loss == pytest.approx(sum(max(0.0, image) for image in images) / 4)


def test_fsll_holds_its_weights_where_they_were(setup: Setup) -> None:
    """Its default strength halves how far they go without the term, but still lets them go."""

    def far(strength: float | None) -> float:
        session = small_session(setup, "fsll")
        rival = Rival(epochs=20, batch=16, strength=strength)
        state = METHODS["fsll"].learn(replace(session, setup=replace(session.setup, rival=rival))).state
        before = session.backbone.state_dict()
        return sum(float((tensor - before[name]).abs().sum()) for name, tensor in state.weights.items())

    free, held = far(0.0), far(None)

    assert 0 < held < free / 2


def test_the_second_phase_of_eeil_is_balanced_and_held_to_the_first(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three images of each class but the one that has a single image, and distilled over old and new classes."""
    session = small_session(setup, "eeil")
    whole = session.all_base_images
    session = replace(session, base_images=whole.select(torch.arange(5, len(whole))))  # one image of the first class
    phases: list[list[int]] = []
    distilled: list[set[int]] = []

    def watched(given: SessionContext, start: Network, images: LabelledViews, *rest: Any, **chosen: Any) -> Network:
        phases.append(images.counts.tolist())
        distilled.append(set())
        return train_head(given, start, images, *rest, **chosen)

    def noted(batch: Batch, classes: int) -> torch.Tensor:
        distilled[-1].add(classes)
        return distillation(batch, classes)

    monkeypatch.setattr("bench.methods.eeil.train_head", watched)
    monkeypatch.setattr("bench.methods.eeil.distillation", noted)
    METHODS["eeil"].learn(session)

    assert phases[1] == [1, 3, 3, 3, 3, 3]
    assert distilled == [{4}, {6}]


def test_the_head_of_fsll_takes_up_no_loss(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are prototypes: they end where they began, and the network learns instead."""
    heads = []

    def watched(session: SessionContext, start: Network, *given: Any, **chosen: Any) -> Network:
        trained = train_head(session, start, *given, **chosen)
        heads.append((start.rows, trained.rows))
        return trained

    monkeypatch.setattr("bench.methods.fsll.train_head", watched)
    METHODS["fsll"].learn(small_session(setup, "fsll"))

    ((before, after),) = heads
    assert torch.equal(before, after)


def test_less_forget_is_the_mean_of_one_less_cosine() -> None:
    """Zero for the same directions, whatever their length; two for the opposite."""
    vectors = torch.tensor([[1.0, 2.0], [3.0, -1.0]])

    assert float(less_forget(2 * vectors, vectors)) == pytest.approx(0, abs=1e-6)
    assert float(less_forget(-vectors, vectors)) == pytest.approx(2)


def test_few_weights_change_and_stay_within_a_bound(setup: Setup) -> None:
    """FSLL changes no more than its share of the parameters, F2M none beyond its bound; both change some."""
    changed = {}
    for method in ("fsll", "f2m"):
        session = small_session(setup, method)
        session = replace(session, setup=replace(session.setup, rival=replace(SMALL, rate=1.0, strength=1.0)))
        state = METHODS[method].learn(session).state
        before = dict(session.backbone.named_parameters())
        moved = [(state.weights[name] - before[name]).abs().flatten() for name in before if name in state.weights]
        changed[method] = torch.cat(moved)

    assert 0 < (changed["fsll"] > 0).sum() <= 0.1 * small_session(setup, "fsll").backbone.parameter_count
    assert 0 < changed["f2m"].max() <= BOUND * 1.0001


def test_the_bound_of_f2m_does_not_move_with_the_sessions(setup: Setup) -> None:
    """After a second session at a high rate each weight is still within the bound of the base session's."""
    session = small_session(setup, "f2m")
    rival = Rival(epochs=10, batch=16, rate=1.0, strength=1.0)
    session = replace(session, setup=replace(session.setup, rival=rival))
    base = session.backbone.state_dict()

    first = METHODS["f2m"].learn(session).state
    shots = LabelledViews(session.shots.inputs.flip(0), session.shots.labels + 10)
    network = with_weights(session.backbone, first.weights)
    second = METHODS["f2m"].learn(replace(session, backbone=network, state=first, shots=shots)).state

    moved = {name: (tensor - first.weights[name]).abs().max() for name, tensor in second.weights.items()}
    assert max(float(far) for far in moved.values()) > 0
    for name, tensor in second.weights.items():
        assert float((tensor - base[name]).abs().max()) <= BOUND * 1.0001


def test_head_training_lowers_its_loss(setup: Setup) -> None:
    """More of the images are nearest to their own row afterwards; the start does not change."""
    session = small_session(setup, "finetune")
    start = starting_network(session)
    images = session.all_base_images.joined(session.shots)
    noise = torch.randn(start.rows.shape, generator=torch.Generator().manual_seed(0))
    worse = replace(start, rows=start.rows + 0.5 * noise)
    kept = deepcopy(worse.part.state_dict())

    trained = train_head(session, worse, images, replace(session.setup.values, epochs=8, rate=1e-3, head_rate=0.2))

    def right(network: object) -> float:
        assert isinstance(network, type(start))
        with torch.no_grad():
            cosines = network.cosines(network.embed(images.inputs[:, 0]))
        return float((cosines.argmax(1) == targets_of(session, images)).float().mean())

    assert right(trained) > right(worse)
    assert all(torch.equal(kept[name], tensor) for name, tensor in worse.part.state_dict().items())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_as_many_candidates(method: str) -> None:
    """Nine around its defaults, all different, all settings that exist; one where there is nothing to choose."""
    setup = Setup(method=method)

    tried = candidates(setup)

    assert len(tried) == (CANDIDATES if METHODS[method].knobs else 1)
    assert len({override(setup, chosen) for chosen in map(list, tried)}) == len(tried)


def test_what_is_set_overrules_the_default_of_the_method() -> None:
    """Only that value: the others stay those of the method."""
    setup = override(Setup(method="lucir"), ["rival.rate=0.5"])

    assert setup.values == replace(METHODS["lucir"].defaults, rate=0.5)


def test_bytes_count_vectors_and_images(shared: RunContext, stream: Stream) -> None:
    """Four base classes of eight images, four later ones of five shots, 64 numbers a vector, 32 px."""
    image, vector = 3 * 32 * 32, 4 * 64

    def kept(**settings: object) -> int:
        return bytes_per_class(replace(Setup(), **settings), shared.backbone, stream)  # type: ignore[arg-type]

    assert kept(method="ncm") == vector
    assert kept(method="icarl", rival=Rival(exemplars=3)) == vector + (3 * 4 + 20) * image / 8
    assert kept(method="joint") == vector + (32 - 8 + 20) * image / 8
    assert kept(gate=False, replay=False) == 2 * (1 + 5) * vector + vector * 64 / 8


def test_bytes_count_no_image_that_a_class_does_not_have(shared: RunContext, stream: Stream) -> None:
    """Base classes of 1, 2, 3 and 8 images: a class keeps two of them out of the guard, so 1, 2, 2 and 6 are left."""
    kept_of = dict(zip(stream.base.class_ids, (1, 2, 3, 8), strict=True))
    few = [
        image
        for c, count in kept_of.items()
        for image in [one for one in stream.base.train if one.class_id == c][:count]
    ]
    uneven = replace(stream, sessions=(replace(stream.base, train=tuple(few)), *stream.sessions[1:]))
    image, vector = 3 * 32 * 32, 4 * 64

    def kept(method: str, exemplars: int = 5) -> int:
        chosen = Setup(method=method, rival=Rival(exemplars=exemplars))
        return 8 * bytes_per_class(chosen, shared.backbone, uneven)

    assert kept("icarl") == 8 * vector + (1 + 2 + 2 + 5 + 20) * image
    assert kept("joint") == 8 * vector + (1 + 2 + 2 + 6 + 20) * image
    assert kept("topic", 2) == 8 * vector + 8 * (vector + image) + vector + 20 * image
    assert kept("topic") == 8 * vector + 11 * (vector + image) + vector + 20 * image
    assert kept("protoquad") == 8 * 2 * (1 + 5) * vector + 64 * vector + (20 + 0 + 0 + 1 + 2) * image


def test_a_larger_bank_shares_the_base_session(shared: RunContext, stream: Stream, setup: Setup) -> None:
    """It is not trained again, and each run has the room that it asked for."""
    chosen = replace(setup_of(setup, "ncm"), base=replace(setup.base, copies=2))
    display = RecordingDisplay()
    run(shared, stream, setup_of(setup, "ncm"))

    small: RunResult = run(replace(shared, display=display), stream, chosen)

    assert display.steps == []
    assert small.evaluation == run(shared, stream, setup_of(setup, "ncm")).evaluation
