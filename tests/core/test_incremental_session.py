"""The training of a session takes any new classes, moves only what it may, and changes nothing that it was given."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from core.backbones import Backbone
from core.bank import PrototypeBank
from core.base_session import base_session
from core.calibration import RIDGE
from core.errors import DuplicateClass, NoImages, SessionCancelled
from core.incremental_session import SHOTS_PER_EPOCH, IncrementalConfig, is_well_determined, training_space
from core.losses import LOSS_KINDS, LossKind
from core.progress import Progress, Report, silent
from core.refinement import refine, teach
from core.scatter import Scatter
from core.space import METRICS, Metric, Whitening
from core.state import LearnerState, with_weights
from core.trials import SessionImages
from core.views import LabelledViews

Bits = Callable[[object], dict[str, object]]
Draw = Callable[..., LabelledViews]
CLEAR = 40.0  # noise in which no image is mistaken


@dataclass(frozen=True, eq=False)
class Session:
    """One session on three new classes of eleven shots: what went in, what was told, what came out."""

    parent: LearnerState
    before: Backbone
    shots: LabelledViews
    steps: list[Progress]
    state: LearnerState
    after: Backbone


def trained(
    network: Backbone, parent: LearnerState, shots: LabelledViews, config: IncrementalConfig, report: Report = silent
) -> LearnerState:
    """The state after a session that nobody judges."""
    refinement = refine(network, parent, SessionImages(shots), config, judge=None, report=report)
    assert refinement.candidate is not None
    return refinement.candidate


@pytest.fixture(scope="module")
def session(world: Any, gentle: IncrementalConfig, activations: Draw) -> Session:
    shots, steps = activations([30, 2, 25], 11, views=3, seed=11), list[Progress]()
    state = trained(world.network, world.state, shots, gentle, steps.append)
    return Session(world.state, world.network, shots, steps, state, with_weights(world.network, state.weights))


@pytest.fixture(scope="module")
def quick(gentle: IncrementalConfig) -> IncrementalConfig:
    return replace(gentle, epochs=1, episodes=2)


@torch.no_grad()
def mean_embeddings(network: Backbone, state: LearnerState, shots: LabelledViews) -> dict[int, Tensor]:
    """Each class's mean over shots and views, written out."""
    means = {}
    for class_id in sorted(set(shots.labels.tolist())):
        views = shots.inputs[shots.labels == class_id].flatten(0, 1)
        means[class_id] = state.space.embed(network.tail(views)).sum(0) / len(views)
    return means


def prototype(state: LearnerState, class_id: int) -> Tensor:
    return state.bank.prototypes[state.bank.class_ids.index(class_id)]


def assert_learned(network: Backbone, parent: LearnerState, state: LearnerState, shots: LabelledViews) -> None:
    """The new classes stand behind the old ones, as the means of their shots under the new weights."""
    expected = mean_embeddings(with_weights(network, state.weights), state, shots)
    assert state.bank.class_ids == parent.bank.class_ids + tuple(expected)
    for class_id, mean in expected.items():
        torch.testing.assert_close(prototype(state, class_id), mean, rtol=1e-3, atol=1e-4)
    assert state.bank.shots[len(parent.bank) :].tolist() == [int((shots.labels == c).sum()) for c in expected]
    assert state.bank.copies.isfinite().all()


# It learns


def test_the_loss_falls_over_a_gentle_session(session: Session) -> None:
    """By a quarter from the first epoch to the last; what smoothed labels leave cannot fall."""
    losses = [step.losses["session"] for step in session.steps]

    assert sum(losses[-6:]) < 0.75 * sum(losses[:6])


def test_new_classes_gain_and_old_ones_mostly_keep(
    session: Session, world: Any, gentle: IncrementalConfig, activations: Draw, accuracy: Callable[..., float]
) -> None:
    """On held-out images, against the same classes taught without training."""
    taught = teach(world.network, world.state, session.shots, gentle)
    new = activations([30, 2, 25], 100, seed=98)

    gain, loss = (
        accuracy(session.after, session.state, views) - accuracy(session.before, taught, views)
        for views in (new, world.test)
    )

    assert gain > 0.01
    assert loss > -0.1


def test_new_prototypes_are_means_under_the_trained_network(session: Session) -> None:
    """Over all shots and views of a class, in ascending order of ids behind the old classes."""
    assert_learned(session.before, session.parent, session.state, session.shots)
    assert session.state.bank.class_ids == (3, 4, 7, 11, 12, 19, 2, 25, 30)


# It moves only what it may


def test_only_the_smallest_weights_of_the_tail_move(session: Session, gentle: IncrementalConfig) -> None:
    """In each tail layer those of least magnitude, together a tenth of the network; all others keep their bits."""
    before, after = session.before.state_dict(), session.after.state_dict()
    layers = [name for name, p in session.before.named_parameters() if name.startswith("tail.") and p.dim() > 1]
    share = gentle.fraction * session.before.parameter_count / sum(before[name].numel() for name in layers)
    changed = {name: before[name] != after[name] for name in before}

    for name in layers:
        magnitudes = before[name].abs().flatten().sort().values
        allowed = before[name].abs() <= magnitudes[round(share * len(magnitudes)) - 1]
        assert not (changed[name] & ~allowed).any()
        assert (changed[name] & allowed).sum() > 0.5 * allowed.sum()
    assert {name for name in before if changed[name].any()} == set(layers)
    assert sum(int(mask.sum()) for mask in changed.values()) <= 0.1001 * session.before.parameter_count


def test_batch_norm_and_the_trunk_keep_their_bits(session: Session, bits: Bits) -> None:
    """Statistics, scale and shift, biases, and everything before the tail."""
    before, after = bits(session.before), bits(session.after)

    moved = {name for name in before if before[name] != after[name]}
    assert moved
    assert all(name.startswith("tail.") and ".conv" in name for name in moved)


def test_a_share_of_everything_trains_all_weights_of_the_tail(
    session: Session, quick: IncrementalConfig, bits: Bits
) -> None:
    """More cannot move: the trunk and batch-norm stay."""
    state = trained(session.before, session.parent, session.shots, replace(quick, fraction=1.0))

    before, after = session.before.state_dict(), with_weights(session.before, state.weights).state_dict()
    layer = "tail.0.0.conv1.weight"
    assert (before[layer] != after[layer]).float().mean() > 0.9
    assert bits(session.before.trunk) == bits(with_weights(session.before, state.weights).trunk)


def test_the_whole_network_can_be_in_scope(
    backbone: Backbone, images: Draw, world: Any, quick: IncrementalConfig, bits: Bits
) -> None:
    """As in the paper: weights of the trunk move too, batch-norm does not."""
    config = replace(quick, scope="all", learning_rate=1e-3)
    parent = base_session(backbone, images([1, 2], 3), replace(world.config, epochs=0, scope="all")).state

    state = trained(backbone, parent, images([8, 9], 2, views=2), config)

    before, after = bits(backbone), bits(with_weights(backbone, state.weights))
    moved = {name for name in before if before[name] != after[name]}
    assert {name.split(".")[0] for name in moved} == {"trunk", "tail"}
    assert all(backbone.state_dict()[name].dim() == 4 for name in moved)
    assert state.bank.class_ids == (1, 2, 8, 9)


def test_parent_and_backbone_are_left_alone(
    world: Any, quick: IncrementalConfig, activations: Draw, bits: Bits
) -> None:
    """Bit for bit, gradients and modes included, by training and by teaching."""
    shots = activations([40, 41], 2)
    state, network, inputs = bits(world.state), bits(world.network), bits({"inputs": shots.inputs})
    wants = [parameter.requires_grad for parameter in world.network.parameters()]

    trained(world.network, world.state, shots, quick)
    teach(world.network, world.state, shots, quick)

    assert (bits(world.state), bits(world.network), bits({"inputs": shots.inputs})) == (state, network, inputs)
    assert [parameter.requires_grad for parameter in world.network.parameters()] == wants
    assert all(parameter.grad is None for parameter in world.network.parameters())
    assert not any(module.training for module in world.network.modules())


# What becomes of the old classes


def test_every_old_class_gets_one_more_copy(session: Session) -> None:
    """The newest stands last, the copy before it is the parent's, and c0 stays."""
    old, new = session.parent.bank, session.state.bank

    assert new.held.tolist() == [2] * 6 + [1] * 3
    assert torch.equal(new.copies[:6, :-1], old.copies[:, 1:])
    assert torch.equal(new.initial[:6], old.initial)
    assert torch.equal(new.shots[:6], old.shots)
    assert not torch.equal(new.prototypes[:6], old.prototypes)


def test_the_oldest_copy_goes_when_the_bank_is_full(
    session: Session, quick: IncrementalConfig, activations: Draw
) -> None:
    """Capacity is three here, so the fourth session forgets the first copy."""
    states = [session.parent]
    for class_id in (50, 51, 52, 53):
        network = with_weights(session.before, states[-1].weights)
        shots = activations([class_id], 2, noise=CLEAR)
        states.append(trained(network, states[-1], shots, replace(quick, episodes=1)))

    held = [state.bank.held.tolist() for state in states[1:]]
    assert held == [[2] * 6 + [1], [3] * 6 + [2, 1], [3] * 7 + [2, 1], [3] * 8 + [2, 1]]
    assert torch.equal(states[4].bank.copies[:6, :2], states[3].bank.copies[:6, 1:])
    assert states[4].bank.capacity == 3


def test_old_prototypes_stand_still_when_nothing_moves_them(session: Session, quick: IncrementalConfig) -> None:
    """Without λ, calibration and drift the newest copy is the one before it, bit for bit."""
    still = replace(quick, prototype_rate=0.0, calibration=False, drift=False)

    state = trained(session.before, session.parent, session.shots, still)

    assert torch.equal(state.bank.prototypes[:6], session.parent.bank.prototypes)


def test_old_prototypes_descend_correlation_and_consistency(session: Session, quick: IncrementalConfig) -> None:
    """One step of λ down the slope of both losses, at unit length, recomputed pair by pair."""
    config = replace(quick, episodes=1, prototype_rate=0.1, calibration=False, drift=False)
    wandered = session.parent.bank.prototypes + 0.05 * torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    parent = replace(session.parent, bank=session.parent.bank.with_copies(wandered))
    c = wandered.clone().requires_grad_()
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    apart = sum(torch.sigmoid(F.cosine_similarity(c[i].tanh(), c[j].tanh(), dim=0)) for i, j in pairs) / len(pairs)
    near = sum(1 - F.cosine_similarity(c[i].tanh(), parent.bank.initial[i].tanh(), dim=0) for i in range(6)) / 6
    (apart + near).backward()
    expected = wandered - 0.1 * wandered.norm(dim=1, keepdim=True) ** 2 * c.grad
    steps: list[Progress] = []

    state = trained(session.before, parent, session.shots, config, steps.append)

    torch.testing.assert_close(state.bank.prototypes[:6], expected, rtol=1e-4, atol=1e-6)
    assert steps[0].losses["correlation"] == pytest.approx(apart.item(), rel=1e-4)
    assert steps[0].losses["consistency"] == pytest.approx(near.item(), rel=1e-3)


def test_old_prototypes_follow_the_shots_when_drift_is_compensated(session: Session, gentle: IncrementalConfig) -> None:
    """By how the session's own shots moved, nearer ones counting more; recomputed from both networks."""
    config = replace(gentle, epochs=2, prototype_rate=0.0, calibration=False, drift=True, drift_bandwidth=0.7)

    state = trained(session.before, session.parent, session.shots, config)

    views, old = session.shots.inputs.flatten(0, 1), session.parent.bank.prototypes
    with torch.no_grad():
        start, end = (
            session.parent.space.embed(network.tail(views))
            for network in (session.before, with_weights(session.before, state.weights))
        )
    for row in range(6):
        gap = (F.normalize(start, dim=1) - F.normalize(old[row], dim=0)).norm(dim=1)
        weight = torch.exp(-(gap**2) / (2 * 0.7**2))
        moved = (weight[:, None] * (end - start)).sum(0) / weight.sum()
        torch.testing.assert_close(state.bank.prototypes[row], old[row] + moved, rtol=1e-3, atol=1e-4)
        assert moved.norm() > 1e-3


@pytest.mark.parametrize("switch", ["calibration", "drift"])
def test_calibration_and_drift_can_be_switched_off(session: Session, quick: IncrementalConfig, switch: str) -> None:
    """Each moves old prototypes that have a history, and neither is needed to learn."""
    shots = LabelledViews(session.shots.inputs, session.shots.labels + 100)

    on, off = (
        trained(session.after, session.state, shots, replace(quick, **{switch: value})) for value in (True, False)
    )

    assert not torch.equal(on.bank.prototypes[:9], off.bank.prototypes[:9])
    for state in (on, off):
        assert_learned(session.after, session.state, state, shots)


def test_old_prototypes_are_recoloured_to_their_smoothed_statistics(session: Session, quick: IncrementalConfig) -> None:
    """c̃ = Σ̃^½ · Σ^-½ · (c − μ) + μ̃, with (μ, Σ) a tenth of the way on; recomputed with dense matrices."""
    moves = 0.3 * torch.randn(2, 6, 64, generator=torch.Generator().manual_seed(1))
    first = session.parent.bank.with_copies(session.parent.bank.prototypes + moves[0])
    bank = first.with_copies(first.prototypes + moves[1])  # three copies: full
    config = replace(quick, episodes=1, statistics_momentum=0.9, prototype_rate=0.0, drift=False, calibration=True)

    state = trained(session.before, replace(session.parent, bank=bank), session.shots, config)

    for row in range(6):
        oldest, middle, newest = bank.copies[row]
        (mean, spread), (late_mean, late_spread) = moments(oldest, middle, newest), moments(middle, newest, newest)
        smoothed = bank.smoothed.factor[row].double()
        whiten = power(0.9 * spread + 0.1 * late_spread, -0.5)
        centred = newest.double() - 0.9 * mean - 0.1 * late_mean
        expected = (power(smoothed.T @ smoothed, 0.5) @ whiten @ centred).float() + bank.smoothed.mean[row]
        torch.testing.assert_close(state.bank.prototypes[row], expected, rtol=1e-3, atol=1e-3)
        assert (expected - newest).norm() > 0.1


def moments(*copies: Tensor) -> tuple[Tensor, Tensor]:
    stacked = torch.stack(copies).double()
    return stacked.mean(0), torch.cov(stacked.T, correction=0)


def power(spread: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(spread + RIDGE * torch.eye(len(spread)))
    return vectors * values**exponent @ vectors.T


def test_a_class_with_one_copy_is_not_calibrated(session: Session, quick: IncrementalConfig) -> None:
    """Without a history there is nothing to smooth: calibration is the identity, up to rounding."""
    config = replace(quick, prototype_rate=0.0, drift=False, calibration=True)

    state = trained(session.before, session.parent, session.shots, config)

    torch.testing.assert_close(state.bank.prototypes[:6], session.parent.bank.prototypes, rtol=1e-4, atol=1e-5)


# Whatever classes come


def test_the_first_classes_ever(backbone: Backbone, quick: IncrementalConfig, activations: Draw, bits: Bits) -> None:
    """The first and the second class are learned without training; from the third on there are quadruplets."""
    state, steps = LearnerState.untaught(backbone, "whitened", copies=3), list[Progress]()
    moved = []
    for class_id in (9, 4, 6):
        parent, network = state, with_weights(backbone, state.weights)
        shots = activations([class_id], 3, views=2, noise=CLEAR)
        steps.clear()

        state = trained(network, parent, shots, quick, steps.append)

        assert_learned(network, parent, state, shots)
        moved.append((len(steps), bits(with_weights(network, state.weights)) != bits(network)))

    assert moved == [(0, False), (0, False), (2, True)]
    assert state.bank.class_ids == (9, 4, 6)


def test_three_first_classes_at_once_are_trained(
    backbone: Backbone, quick: IncrementalConfig, activations: Draw
) -> None:
    """Without a past the negatives are the session's own classes, and no old prototype has a loss."""
    parent, steps = LearnerState.untaught(backbone, "cosine", copies=3), list[Progress]()
    shots = activations([1, 2, 3], 2, noise=CLEAR)

    state = trained(backbone, parent, shots, quick, steps.append)

    assert_learned(backbone, parent, state, shots)
    assert [set(step.losses) for step in steps] == [{"session"}, {"session"}]


def test_one_class_at_a_time_many_times(
    world: Any, quick: IncrementalConfig, activations: Draw, accuracy: Callable[..., float]
) -> None:
    """Eight sessions of one class each: all of them are known at the end, and so is the base."""
    state, network = world.state, world.network
    shots = {class_id: activations([class_id], 3, views=2, noise=CLEAR) for class_id in range(60, 68)}
    for class_id in shots:
        state = trained(network, state, shots[class_id], replace(quick, learning_rate=1e-4, seed=class_id))
        network = with_weights(network, state.weights)

    known = [accuracy(network, state, views) for views in shots.values()]
    assert state.bank.class_ids == (3, 4, 7, 11, 12, 19, *range(60, 68))
    assert sum(known) / len(known) > 0.8
    assert accuracy(network, state, world.test) > 0.5


def different_numbers(activations: Draw) -> LabelledViews:
    parts = [activations([class_id], shots, views=2, noise=CLEAR) for class_id, shots in ((8, 1), (5, 4), (6, 2))]
    return LabelledViews(torch.cat([part.inputs for part in parts]), torch.cat([part.labels for part in parts]))


def interleaved(activations: Draw) -> LabelledViews:
    return activations([900, 1, 77], 3, noise=CLEAR).select(torch.tensor([8, 0, 3, 1, 6, 4, 2, 7, 5]))


def the_same_image(activations: Draw, *class_ids: int) -> LabelledViews:
    single = activations([8], 1, views=2)
    count = 3 * len(class_ids)
    return LabelledViews(single.inputs.repeat(count, 1, 1, 1, 1), torch.tensor(class_ids).repeat_interleave(3))


SHOTS: dict[str, Callable[[Draw], LabelledViews]] = {
    "one shot in one view": lambda draw: draw([20], 1),
    "one shot in two views": lambda draw: draw([20], 1, views=2),
    "one shot of each of three classes": lambda draw: draw([20, 21, 22], 1, views=3),
    "no augmented view": lambda draw: draw([20, 21], 4),
    "a hundred shots": lambda draw: draw([20], 100),
    "a different number of shots for each class": different_numbers,
    "more classes than an episode holds": lambda draw: draw(range(20, 32), 1),
    "ids far apart and shots in no order": interleaved,
    "a large id": lambda draw: draw([2**40], 2),
    "the same image three times": lambda draw: the_same_image(draw, 8),
    "the same image for two classes": lambda draw: the_same_image(draw, 8, 9),
}


@pytest.mark.parametrize("prototypes", ["learned", "support"])
@pytest.mark.parametrize("kind", SHOTS)
def test_any_new_classes_can_be_learned(
    kind: str, prototypes: Literal["learned", "support"], world: Any, quick: IncrementalConfig, activations: Draw
) -> None:
    """However many there are, however often each was seen, whatever they are called."""
    shots, steps = SHOTS[kind](activations), list[Progress]()

    state = trained(world.network, world.state, shots, replace(quick, prototypes=prototypes), steps.append)

    assert_learned(world.network, world.state, state, shots)
    assert len(steps) == 2
    assert all(torch.tensor(list(step.losses.values())).isfinite().all() for step in steps)


def test_shots_in_half_precision_are_learned_from(world: Any, quick: IncrementalConfig, activations: Draw) -> None:
    """Activations may be kept in half the bytes."""
    shots = activations([20, 21], 3, noise=CLEAR)
    halves = LabelledViews(shots.inputs.half(), shots.labels)

    state = trained(world.network, world.state, halves, quick)

    plain = trained(world.network, world.state, shots, quick)
    torch.testing.assert_close(state.bank.prototypes[-2:], plain.bank.prototypes[-2:], rtol=0, atol=0.02)


def test_a_bank_of_two_thousand_classes_takes_another(world: Any, quick: IncrementalConfig, activations: Draw) -> None:
    """Every one of them gets its copy."""
    many = torch.randn(2000, 64, generator=torch.Generator().manual_seed(0))
    bank = world.state.bank.with_classes(range(1000, 3000), many, [5] * 2000).with_copies(
        torch.cat([world.state.bank.prototypes, many + 0.01])
    )
    parent, shots = replace(world.state, bank=bank), activations([20], 3, noise=CLEAR)

    state = trained(world.network, parent, shots, quick)

    assert_learned(world.network, parent, state, shots)
    assert state.bank.held.tolist() == [3] * 2006 + [1]


def test_a_bank_that_keeps_one_copy_works(world: Any, quick: IncrementalConfig, activations: Draw) -> None:
    """B = 1: there is never a history."""
    bank = PrototypeBank.empty(64, capacity=1).with_classes(
        world.state.bank.class_ids, world.state.bank.prototypes, [22] * 6
    )
    parent, shots = replace(world.state, bank=bank), activations([20], 3, noise=CLEAR)

    state = trained(world.network, parent, shots, quick)

    assert_learned(world.network, parent, state, shots)
    assert state.bank.held.tolist() == [1] * 7


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_can_learn(
    backbone: Backbone, world: Any, quick: IncrementalConfig, activations: Draw, metric: Metric
) -> None:
    """Prototypes are means in the metric's own space, before and after."""
    parent = base_session(backbone, world.training, replace(world.config, epochs=0, metric=metric)).state
    shots, steps = activations([20, 21], 3, views=2), list[Progress]()

    state = trained(backbone, parent, shots, quick, steps.append)

    assert_learned(backbone, parent, state, shots)
    assert state.space is parent.space
    assert len(steps) == 2


@pytest.fixture(scope="module")
def by_loss(session: Session, quick: IncrementalConfig) -> dict[LossKind, LearnerState]:
    """One session for each loss, all else equal."""
    return {
        kind: trained(session.before, session.parent, session.shots, replace(quick, loss=kind)) for kind in LOSS_KINDS
    }


def test_every_loss_can_be_descended(by_loss: dict[LossKind, LearnerState], session: Session, bits: Bits) -> None:
    """Six of them, and each leads elsewhere."""
    assert len(by_loss) == 6
    for state in by_loss.values():
        assert_learned(session.before, session.parent, state, session.shots)
    ends = {tuple(sorted(bits(state.weights).items())) for state in by_loss.values()}
    assert len(ends) == 6


@pytest.mark.parametrize(
    "ablation",
    [
        {"prototypes": "support"},
        {"prototypes": "support", "optimiser": "sgd", "learning_rate": 1e-4},
        {"smoothing": 0.0},
        {"sharpness": 2.0},
        {"prototype_rate": 0.0},
        {"batch": 4},
        {"blend": 0.5},
    ],
    ids=str,
)
def test_every_part_can_be_set_otherwise(
    session: Session,
    quick: IncrementalConfig,
    by_loss: dict[LossKind, LearnerState],
    bits: Bits,
    ablation: dict[str, Any],
) -> None:
    """It still learns, and ends elsewhere."""
    other = trained(session.before, session.parent, session.shots, replace(quick, **ablation))

    assert_learned(session.before, session.parent, other, session.shots)
    assert bits(other) != bits(by_loss[quick.loss])


# How long, and in which space


@pytest.mark.parametrize(("shots", "epochs"), [(1, 1), (7, 1), (17, 2), (24, 3), (60, 4)])
def test_few_shots_have_fewer_epochs(
    world: Any, gentle: IncrementalConfig, activations: Draw, shots: int, epochs: int
) -> None:
    """Each epoch needs eight shots where prototypes are learned, up to the epochs asked for."""
    learned, support = list[Progress](), list[Progress]()
    config, drawn = replace(gentle, episodes=2), activations([40], shots)

    trained(world.network, world.state, drawn, config, learned.append)
    trained(world.network, world.state, drawn, replace(config, prototypes="support"), support.append)

    assert SHOTS_PER_EPOCH == 8
    assert [step.epochs for step in learned] == [epochs] * 2 * epochs
    assert len(support) == 8


@pytest.mark.parametrize(
    "steps",
    [1, 2, 3, 4, 5, 6, 7, 10],
)
def test_any_number_of_steps_can_be_trained(
    session: Session, gentle: IncrementalConfig, bits: Bits, steps: int
) -> None:
    """The rate rises and falls within however few there are."""
    seen = list[Progress]()
    config = replace(gentle, epochs=1, episodes=steps, batch=4)

    state = trained(session.before, session.parent, session.shots, config, seen.append)

    assert len(seen) == steps
    assert bits(with_weights(session.before, state.weights)) != bits(session.before)
    assert state.bank.copies.isfinite().all()


def test_a_space_is_trained_in_when_many_images_determine_it(world: Any) -> None:
    """Four times as many deviations as dimensions; by fewer, all shots are at their prototypes already."""
    factor = world.state.scatter.factor

    spaces = {freedom: training_space(replace(world.state, scatter=Scatter(factor, freedom))) for freedom in (255, 256)}

    assert spaces[256] is world.state.space
    assert (spaces[255].metric, spaces[255].whitening) == ("whitened", None)
    assert is_well_determined(world.state.scatter)
    assert not is_well_determined(None)


def test_a_space_of_an_earlier_release_is_trained_in(world: Any, backbone: Backbone) -> None:
    """Its scatter is not known; a learner without classes has no such space."""
    assert training_space(replace(world.state, scatter=None)) is world.state.space
    assert training_space(LearnerState.untaught(backbone)).whitening is None


def test_old_prototypes_come_back_from_the_space_of_the_training(
    session: Session, quick: IncrementalConfig, activations: Draw
) -> None:
    """Trained in the space that needs no fitting, served in the fitted one: where nothing moves them, they stay."""
    parent = replace(session.parent, scatter=Scatter(session.parent.scatter.factor, 100))
    still = replace(quick, prototype_rate=0.0, calibration=False, drift=False, refit=True)

    state = trained(session.before, parent, activations([40], 3, views=2), still)

    old = session.parent.space.whitening
    new = state.space.whitening
    assert isinstance(old, Whitening)
    assert isinstance(new, Whitening)
    plain = session.parent.bank.prototypes.double() @ old.projection.double().inverse() + old.origin
    expected = (plain - new.origin) @ new.projection.double()
    torch.testing.assert_close(state.bank.prototypes[:6], expected.float(), rtol=1e-3, atol=1e-3)
    assert state.bank.held.tolist() == [2] * 6 + [1]


# What is refused


def test_a_class_that_is_known_already_is_refused(world: Any, quick: IncrementalConfig, activations: Draw) -> None:
    """More shots of it are another matter; the error names it."""
    shots = activations([20, 7], 2)

    with pytest.raises(DuplicateClass, match=r"classes \[7\] are in the bank already"):
        trained(world.network, world.state, shots, quick)
    with pytest.raises(DuplicateClass, match=r"classes \[7\] are in the bank already"):
        teach(world.network, world.state, shots, quick)


def test_no_shots_are_refused(world: Any, quick: IncrementalConfig, activations: Draw) -> None:
    """A session needs an image."""
    nobody = activations([20], 1).select(torch.arange(0))

    with pytest.raises(NoImages, match="no image to learn from"):
        trained(world.network, world.state, nobody, quick)
    with pytest.raises(NoImages, match="no image to learn from"):
        teach(world.network, world.state, nobody, quick)


# Seeds, progress, cancelling


def test_the_seed_decides_everything(session: Session, quick: IncrementalConfig, bits: Bits) -> None:
    """The same seed gives the same bits whatever torch's own generator stands at; another seed gives others."""
    states = []
    for ambient, seed in ((1, 0), (2, 0), (1, 5)):
        with torch.random.fork_rng():
            torch.manual_seed(ambient)
            config = replace(quick, seed=seed)
            states.append(bits(trained(session.before, session.parent, session.shots, config)))

    assert states[0] == states[1]
    assert states[0] != states[2]


def test_every_episode_is_reported(session: Session) -> None:
    """Epoch, episode and the three losses, from the first to the last."""
    assert [(step.epoch, step.episode) for step in session.steps] == [(e, i) for e in range(1, 5) for i in range(1, 7)]
    assert {(step.epochs, step.episodes) for step in session.steps} == {(4, 6)}
    assert session.steps[-1].fraction == 1.0
    for step in session.steps:
        assert set(step.losses) == {"session", "correlation", "consistency"}
        assert torch.tensor(list(step.losses.values())).isfinite().all()


def test_a_session_can_be_cancelled_between_episodes(session: Session, gentle: IncrementalConfig, bits: Bits) -> None:
    """The error of the callback comes through, no further episode runs, and nothing given has changed."""
    before, seen = (bits(session.before), bits(session.parent)), list[Progress]()

    def cancel(step: Progress) -> None:
        seen.append(step)
        if len(seen) == 3:
            raise SessionCancelled("enough")

    with pytest.raises(SessionCancelled, match="enough"):
        trained(session.before, session.parent, session.shots, gentle, report=cancel)

    assert len(seen) == 3
    assert (bits(session.before), bits(session.parent)) == before


def test_milestones_divide_the_rate_by_five(session: Session, quick: IncrementalConfig, bits: Bits) -> None:
    """A milestone at the very start is the same as a fifth of the rate; one at the end changes nothing."""
    plain = replace(quick, prototypes="support", optimiser="sgd", learning_rate=5e-5)
    rates = {
        "fifth": replace(plain, learning_rate=5e-5 / 5),
        "from the start": replace(plain, milestones=(0.0,)),
        "plain": plain,
        "at the end": replace(plain, milestones=(1.0,)),
    }

    ends = {
        name: bits(trained(session.before, session.parent, session.shots, config)) for name, config in rates.items()
    }

    assert ends["from the start"] == ends["fifth"]
    assert ends["at the end"] == ends["plain"]
    assert ends["plain"] != ends["fifth"]


def test_the_paper_preset_is_what_the_paper_prints() -> None:
    """Section V-B: 60 epochs of 10 episodes at 2.0, divided by 5 at 25, 35, 45 and 55, decay 1e-5, a tenth of f."""
    paper = IncrementalConfig.paper()

    assert (paper.epochs, paper.episodes, paper.learning_rate, paper.weight_decay) == (60, 10, 2.0, 1e-5)
    assert [round(share * paper.epochs, 6) for share in paper.milestones] == [25, 35, 45, 55]
    assert (paper.loss, paper.scope, paper.fraction) == ("prototypical-quadruplet", "all", 0.1)
    assert (paper.margins.query, paper.margins.negatives, paper.prototype_rate) == (1.0, 0.5, 0.1)
    assert (paper.calibration, paper.drift, paper.prior_shots) == (True, False, 0.0)
    assert (paper.prototypes, paper.optimiser, paper.momentum) == ("support", "sgd", 0.0)
    assert (paper.blend, paper.refit, paper.search) == (1.0, False, False)


def test_the_paper_preset_runs(backbone: Backbone, images: Draw, world: Any, bits: Bits) -> None:
    """On images, over the whole network, with its own losses; at a rate for a network without normalised weights."""
    config = replace(IncrementalConfig.paper(), epochs=1, episodes=2, learning_rate=1e-3)
    base = replace(world.config, epochs=0, scope="all", metric="cosine")
    parent, steps = base_session(backbone, images([1, 2], 3), base).state, list[Progress]()
    shots = images([8, 9], 2, views=2)

    state = trained(backbone, parent, shots, config, steps.append)

    after = with_weights(backbone, state.weights)
    assert len(steps) == 2
    assert bits(after.trunk) != bits(backbone.trunk)
    with torch.no_grad():
        expected = state.space.embed(after(shots.inputs.flatten(0, 1))).unflatten(0, (2, 4)).mean(1)
    torch.testing.assert_close(state.bank.prototypes[2:], expected, rtol=1e-3, atol=1e-4)


# Teaching without training


def test_no_epochs_equal_teaching(session: Session, gentle: IncrementalConfig, bits: Bits) -> None:
    """The new classes get the prototypes that teaching gives them, and the weights stay."""
    taught = teach(session.before, session.parent, session.shots, gentle)

    state = trained(session.before, session.parent, session.shots, replace(gentle, epochs=0))

    assert torch.equal(state.bank.prototypes[6:], taught.bank.prototypes[6:])
    assert bits(with_weights(session.before, state.weights)) == bits(session.before)
    assert torch.equal(state.bank.prototypes[:6], taught.bank.prototypes[:6])
    assert state.bank.held.tolist() == [1] * 9  # nothing has moved, so there is no further copy


def test_a_fraction_of_zero_leaves_the_network_alone(session: Session, gentle: IncrementalConfig, bits: Bits) -> None:
    """The class means are learned all the same."""
    state = trained(session.before, session.parent, session.shots, replace(gentle, fraction=0.0))

    assert bits(with_weights(session.before, state.weights)) == bits(session.before)
    assert_learned(session.before, session.parent, state, session.shots)


def test_teaching_takes_the_mean_of_the_shots(session: Session, gentle: IncrementalConfig, bits: Bits) -> None:
    """Over shots and views under the parent's weights; what was known before keeps its bits."""
    taught = teach(session.before, session.parent, session.shots, replace(gentle, prior_shots=0.0))

    assert_learned(session.before, session.parent, taught, session.shots)
    known = replace(taught, bank=taught.bank.only(session.parent.bank.class_ids))
    assert bits(known) == bits(session.parent)


def test_a_prior_pulls_towards_well_known_classes(session: Session, gentle: IncrementalConfig) -> None:
    """The fewer the shots the further; where no class is well known, not at all."""
    base = session.parent.bank
    unknown = PrototypeBank.empty(64, 3).with_classes(base.class_ids, base.prototypes, [19] * 6)

    def nearness(state: LearnerState) -> Tensor:
        return (F.normalize(state.bank.prototypes[6:], dim=1) @ F.normalize(base.prototypes, dim=1).T).max(1).values

    plain, some, much = (
        teach(session.before, session.parent, session.shots, replace(gentle, prior_shots=prior))
        for prior in (0.0, 2.0, 10.0)
    )
    alone = teach(
        session.before, replace(session.parent, bank=unknown), session.shots, replace(gentle, prior_shots=10.0)
    )

    assert (nearness(plain) < nearness(some)).all()
    assert (nearness(some) < nearness(much)).all()
    assert torch.equal(alone.bank.prototypes[6:], plain.bank.prototypes[6:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_it_trains_on_cuda(session: Session, gentle: IncrementalConfig) -> None:
    """What comes back is on the CPU, and close to what the CPU learns."""
    state = refine(
        session.before, session.parent, SessionImages(session.shots), gentle, judge=None, device="cuda"
    ).state

    assert all(tensor.device.type == "cpu" for tensor in state.weights.values())
    torch.testing.assert_close(state.bank.prototypes, session.state.bank.prototypes, rtol=0.1, atol=0.1)
