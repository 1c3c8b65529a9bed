"""A snapshot gives back what was put in, bit for bit, and nothing else passes for one."""

import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from core.bank import PrototypeBank
from core.classifier import Certainty, NearestClassMean
from core.errors import SnapshotError
from core.incremental_session import IncrementalConfig
from core.refinement import refine
from core.scatter import Scatter
from core.snapshot import LARGEST_ABOUT, fingerprint, from_bytes, to_bytes
from core.space import METRICS, Metric, Space, Whitening
from core.state import LearnerState, with_weights
from core.trials import SessionImages
from core.views import LabelledViews

Bits = Callable[[object], dict[str, object]]
Draw = Callable[..., LabelledViews]
FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)
Change = Callable[[dict[str, Tensor]], None]


def small_state(metric: Metric = "whitened") -> LearnerState:
    """Two classes with a history of two copies, one tensor a little trained and one all over, everything small."""
    generator = torch.Generator().manual_seed(3)
    bank = PrototypeBank.empty(4, capacity=3).with_classes([900, 7], torch.randn(2, 4, generator=generator), [5, 20])
    bank = bank.with_copies(torch.randn(2, 4, generator=generator))
    fitted = Whitening(torch.randn(4, generator=generator), torch.randn(4, 4, generator=generator))
    space = Space(metric, fitted if metric == "whitened" else None)
    weights = {"tail.a": torch.zeros(3, 2), "tail.b": torch.randn(2, 2, generator=generator)}
    weights["tail.a"].view(-1)[[1, 4]] = torch.randn(2, generator=generator)
    weights["tail.count"] = torch.tensor(8)
    return LearnerState("resnet32", weights, space, bank)


STATE = small_state()
BASE = {"tail.a": torch.zeros(3, 2), "tail.b": torch.zeros(2, 2)}
WHOLE, DELTA = to_bytes(STATE), to_bytes(STATE, BASE)
SCATTERED = replace(STATE, scatter=Scatter(torch.randn(3, 4, generator=torch.Generator().manual_seed(5)), 11))


@pytest.fixture(scope="module")
def refined(world: Any, gentle: IncrementalConfig, activations: Draw) -> LearnerState:
    """The base state after one real session."""
    shots = activations([30, 2], 3, seed=11)
    config = replace(gentle, epochs=1, episodes=4, refit=True)
    return refine(world.network, world.state, SessionImages(shots), config, judge=None).state


# Round trips


@pytest.mark.parametrize("against_base", [False, True])
def test_a_snapshot_gives_back_every_bit(refined: LearnerState, world: Any, bits: Bits, against_base: bool) -> None:
    """Weights, bank, statistics, space and ids of a real session, whole or as a difference."""
    base = world.state.weights if against_base else {}

    restored = from_bytes(to_bytes(refined, base), base)

    assert bits(restored) == bits(refined)


@pytest.mark.parametrize("against_base", [False, True])
def test_a_restored_learner_predicts_the_same(refined: LearnerState, world: Any, against_base: bool) -> None:
    """Distances to every class are the same bits, and so are the answers."""
    base = world.state.weights if against_base else {}
    restored = from_bytes(to_bytes(refined, base), base)

    outcomes = []
    for state in (refined, restored):
        with torch.no_grad():
            features = with_weights(world.network, state.weights).tail(world.test.inputs[:30, 0])
            classifier = NearestClassMean(state.space, state.bank, Certainty())
            outcomes.append((classifier.distances(features), classifier.predict(features)))

    assert torch.equal(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1] == outcomes[1][1]


def test_a_version_costs_a_fraction_of_its_network(refined: LearnerState, world: Any) -> None:
    """With a tenth of the weights changed, the difference is well under half of the whole."""
    whole, difference = len(to_bytes(refined)), len(to_bytes(refined, world.state.weights))

    assert difference < 0.5 * whole
    assert difference > len(to_bytes(world.state, world.state.weights))


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_comes_back(metric: Metric, bits: Bits) -> None:
    """With its whitening where it has one."""
    state = small_state(metric)

    assert bits(from_bytes(to_bytes(state))) == bits(state)


def test_a_learner_that_knows_nothing_comes_back(backbone: Any, bits: Bits) -> None:
    """No classes, no weights, no whitening."""
    state = LearnerState.untaught(backbone, "whitened", copies=4)

    restored = from_bytes(to_bytes(state))

    assert bits(restored) == bits(state)
    assert (len(restored.bank), restored.bank.dim, restored.bank.capacity) == (0, 64, 4)


def test_class_ids_keep_their_order_and_their_size() -> None:
    """Large, negative and unordered ids are ids like any other."""
    ids = (5, -1, 2**60, 0)
    bank = PrototypeBank.empty(4, 2).with_classes(ids, torch.ones(4, 4), [1, 2, 3, 4])

    restored = from_bytes(to_bytes(replace(STATE, bank=bank)))

    assert restored.bank.class_ids == ids
    assert restored.bank.shots.tolist() == [1, 2, 3, 4]


def test_minus_zero_is_not_zero(bits: Bits) -> None:
    """Differences are taken by bits: a changed sign of zero is a change, and not-a-number equals itself."""
    base = {"w": torch.tensor([0.0, -0.0, 1.0, math.nan, -0.0])}
    state = replace(STATE, weights={"w": torch.tensor([-0.0, 0.0, 1.0, math.nan, -0.0])})

    data = to_bytes(state, base)

    assert bits(from_bytes(data, base).weights) == bits(state.weights)
    assert load(data)["changed.w"].tolist() == [0, 1]


def test_unchanged_weights_cost_nothing() -> None:
    """Not one element is written for a tensor that equals its base."""
    tensors = load(to_bytes(STATE, dict(STATE.weights)))

    assert len(tensors["changed.tail.a"]) == len(tensors["values.tail.a"]) == 0
    assert "weights.tail.a" not in tensors


def test_weights_beyond_the_base_are_written_whole(bits: Bits) -> None:
    """A session may train what the base session did not."""
    restored = from_bytes(DELTA, BASE)

    assert set(load(DELTA)) >= {"weights.tail.count", "changed.tail.a", "values.tail.a"}
    assert bits(restored) == bits(STATE)


def test_what_is_mostly_changed_is_written_whole(bits: Bits) -> None:
    """Its elements with their places would take more room. Snapshots that hold those are read as well."""

    def with_places(tensors: dict[str, Tensor]) -> None:
        values = tensors.pop("weights.tail.b").flatten()
        tensors.update({"changed.tail.b": torch.arange(4, dtype=torch.int32), "values.tail.b": values})

    assert "weights.tail.b" in load(DELTA)
    assert bits(from_bytes(changed(DELTA, with_places), BASE)) == bits(STATE)


def test_what_lies_scattered_in_memory_comes_back() -> None:
    """Channels-last weights and slices are written as they read."""
    weight = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    scattered = weight.contiguous(memory_format=torch.channels_last)
    state = replace(STATE, weights={"w": scattered, "s": torch.arange(10.0)[::2]})
    base = {"w": torch.zeros(4, 3, 2, 2), "s": torch.arange(5.0)}

    for restored in (from_bytes(to_bytes(state)), from_bytes(to_bytes(state, base), base)):
        assert torch.equal(restored.weights["w"], weight)
        assert restored.weights["s"].tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_reading_leaves_the_base_alone(bits: Bits) -> None:
    """The base weights are shared by all versions."""
    before = bits(BASE)

    restored = from_bytes(DELTA, BASE)
    restored.weights["tail.a"].fill_(9)

    assert bits(BASE) == before


def test_the_same_state_gives_the_same_bytes() -> None:
    """So snapshots can be compared and kept once."""
    assert to_bytes(STATE, BASE) == DELTA == to_bytes(from_bytes(DELTA, BASE), BASE)


# What an earlier release wrote


DATA = Path(__file__).parent / "data"


def test_snapshots_of_an_earlier_release_are_read(bits: Bits) -> None:
    """Whole or as a difference, every bit; their temperature and threshold are ignored, as they always were."""
    whole, delta = ((DATA / f"snapshot-1-{kind}.safetensors").read_bytes() for kind in ("whole", "delta"))

    assert bits(from_bytes(whole)) == bits(from_bytes(delta, BASE)) == bits(STATE)
    assert json.loads(bytes(load(whole)["about"].tolist()))["format"] == "protoquad-snapshot-1"


def test_the_scatter_comes_back(bits: Bits) -> None:
    """Whole or as a difference, every bit of it and its number of deviations."""
    for restored in (from_bytes(to_bytes(SCATTERED)), from_bytes(to_bytes(SCATTERED, BASE), BASE)):
        assert bits(restored) == bits(SCATTERED)
        assert restored.scatter is not None
        assert restored.scatter.freedom == 11


def test_an_empty_scatter_is_not_the_same_as_none() -> None:
    """One image of each class in one view: the scatter is known, and it is nothing."""
    nothing = replace(STATE, scatter=Scatter(torch.zeros(0, 4), 0))

    restored = from_bytes(to_bytes(nothing))

    assert restored.scatter is not None
    assert (tuple(restored.scatter.factor.shape), restored.scatter.freedom) == ((0, 4), 0)
    assert from_bytes(to_bytes(STATE)).scatter is None


def test_only_a_state_with_a_scatter_needs_the_second_format() -> None:
    """Without one, earlier releases read it."""
    formats = [json.loads(bytes(load(to_bytes(state))["about"].tolist()))["format"] for state in (STATE, SCATTERED)]

    assert formats == ["protoquad-snapshot-1", "protoquad-snapshot-2"]


# What is refused on writing


def test_a_state_must_hold_what_its_base_holds() -> None:
    """Else the difference would bring back weights that the state never had."""
    with pytest.raises(SnapshotError, match=r"the state lacks 1 of its base's weights \(tail\.c first\)"):
        to_bytes(STATE, {"tail.a": torch.zeros(3, 2), "tail.c": torch.zeros(1)})


@pytest.mark.parametrize("other", [torch.zeros(2, 3), torch.zeros(3, 2, dtype=torch.float64)])
def test_a_base_of_another_shape_or_type_is_refused(other: Tensor) -> None:
    """There is no difference between what cannot be compared."""
    with pytest.raises(SnapshotError, match=r"tail\.a has another shape or type"):
        to_bytes(STATE, {"tail.a": other})


# What is refused on reading


def changed(data: bytes, change: Change) -> bytes:
    tensors = load(data)
    change(tensors)
    return save(tensors)


def told(data: bytes, **facts: Any) -> bytes:
    """The snapshot with other facts in its description; one that is `...` is taken out."""

    def change(tensors: dict[str, Tensor]) -> None:
        about = {**json.loads(bytes(tensors["about"].tolist())), **facts}
        kept = {name: fact for name, fact in about.items() if fact is not ...}
        tensors["about"] = described(json.dumps(kept).encode())

    return changed(data, change)


def described(text: bytes) -> Tensor:
    return torch.tensor(list(text), dtype=torch.uint8)


def test_the_tools_of_these_tests_change_nothing_by_themselves(bits: Bits) -> None:
    """A snapshot taken apart and put together again is still one."""
    assert bits(from_bytes(told(DELTA), BASE)) == bits(STATE)
    assert bits(from_bytes(changed(DELTA, lambda tensors: None), BASE)) == bits(STATE)  # noqa: ARG005


@FUZZ
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    """Never another error, never an answer."""
    with pytest.raises(SnapshotError):
        from_bytes(data)


@FUZZ
@given(st.integers(0, len(DELTA) - 1))
def test_a_snapshot_cut_short_is_refused(length: int) -> None:
    """At whichever byte it ends."""
    with pytest.raises(SnapshotError):
        from_bytes(DELTA[:length], BASE)


@FUZZ
@given(st.binary(min_size=1, max_size=20))
def test_a_snapshot_with_more_behind_it_is_refused(tail: bytes) -> None:
    """The container says where it ends."""
    with pytest.raises(SnapshotError):
        from_bytes(DELTA + tail, BASE)


@FUZZ
@given(st.lists(st.tuples(st.integers(0, len(DELTA) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_bytes_are_refused_or_read_as_a_whole_state(damage: list[tuple[int, int]]) -> None:
    """Numbers carry no checksum, so some damage is not seen; but there is no other error and no half a state."""
    data = bytearray(DELTA)
    for position, value in damage:
        data[position] = value

    try:
        state = from_bytes(bytes(data), BASE)
    except SnapshotError:
        return

    assert set(state.weights) >= set(BASE)
    assert state.bank.copies.shape == (len(state.bank), state.bank.capacity, state.bank.dim)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"format": "protoquad-snapshot-3"},
            "is protoquad-snapshot-1 or protoquad-snapshot-2, not 'protoquad-snap",
        ),
        ({"format": ["protoquad-snapshot-1"]}, "is protoquad-snapshot-1 or protoquad-snapshot-2, not"),
        ({"format": ...}, "is protoquad-snapshot-1 or protoquad-snapshot-2, not None"),
        ({"temperature": ...}, "a snapshot has the fields"),
        ({"metric": "manhattan"}, "metric 'manhattan' is not one of"),
        ({"metric": ["cosine"]}, "metric .* is not one of"),
        ({"base": "0" * 64}, "other base weights"),
        ({"base": None}, "other base weights"),
        ({"backbone": 18}, "backbone 18 is not a name"),
        ({"backbone": ...}, "a snapshot has the fields"),
        ({"note": "hello"}, "a snapshot has the fields"),
        ({"class_ids": ...}, "a snapshot has the fields"),
        ({"class_ids": [900]}, "incomplete or inconsistent"),
        ({"class_ids": [900, 7, 8]}, "incomplete or inconsistent"),
        ({"class_ids": [900, 900]}, "distinct whole numbers"),
        ({"class_ids": [900, 7.5]}, "distinct whole numbers"),
        ({"class_ids": "97"}, "distinct whole numbers"),
        ({"class_ids": None}, "incomplete or inconsistent"),
        ({"weights": ["tail.a"]}, "other weights than it lists"),
        ({"weights": None}, "other weights than it lists"),
        ({"whitened": False}, "2 tensors that do not belong to it"),
    ],
)
def test_a_description_that_is_not_true_is_refused(facts: dict[str, Any], message: str) -> None:
    """Every fact in it is checked against what is there."""
    with pytest.raises(SnapshotError, match=message):
        from_bytes(told(DELTA, **facts), BASE)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"freedom": ...}, "a snapshot has the fields"),
        ({"freedom": -1}, "no number of deviations"),
        ({"freedom": 2**53}, "no number of deviations"),
        ({"freedom": 11.0}, "no number of deviations"),
        ({"freedom": True}, "no number of deviations"),
        ({"freedom": None}, "no number of deviations"),
        ({"format": "protoquad-snapshot-1"}, "a snapshot has the fields"),
        (
            {"format": "protoquad-snapshot-1", "freedom": ..., "allowance": ..., "by_class": ...},
            "1 tensors that do not belong to it",
        ),
        ({"allowance": -0.1}, "no allowance for few images"),
        ({"allowance": 2.0}, "no allowance for few images"),
        ({"allowance": None}, "no allowance for few images"),
        ({"by_class": 1}, "thresholds of their own"),
    ],
)
def test_a_scatter_that_is_described_wrongly_is_refused(facts: dict[str, Any], message: str) -> None:
    """How many deviations it comes from is a whole number, and it belongs to the second format only."""
    with pytest.raises(SnapshotError, match=message):
        from_bytes(told(to_bytes(SCATTERED), **facts))


@pytest.mark.parametrize(
    "factor",
    [
        torch.ones(3, 5),
        torch.ones(5, 4),  # more rows than dimensions
        torch.ones(4),
        torch.tensor(1.0),
        torch.ones(3, 4, dtype=torch.float64),
        torch.full((3, 4), torch.nan),
        torch.full((3, 4), torch.inf),
    ],
)
def test_a_scatter_that_does_not_fit_is_refused(factor: Tensor) -> None:
    """By its shape, its type, or numbers that cannot be."""
    data = changed(to_bytes(SCATTERED), lambda tensors: tensors.update(scatter=factor))

    with pytest.raises(SnapshotError, match="incomplete or inconsistent"):
        from_bytes(data)


def test_a_missing_scatter_is_refused() -> None:
    """The second format has one."""
    with pytest.raises(SnapshotError, match="incomplete or inconsistent"):
        from_bytes(changed(to_bytes(SCATTERED), lambda tensors: tensors.pop("scatter")))


@pytest.mark.parametrize(
    "about",
    [b"", b"{", b"[1, 2]", b"null", b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "broken", "a list", "null", "not text", "very deep"],
)
def test_a_description_that_is_none_is_refused(about: bytes) -> None:
    """It has to be JSON, and a table."""
    with pytest.raises(SnapshotError):
        from_bytes(changed(DELTA, lambda tensors: tensors.update(about=described(about))), BASE)


@pytest.mark.parametrize("as_other", [lambda about: about[None], lambda about: about.float()])
def test_a_description_in_another_kind_of_tensor_is_refused(as_other: Callable[[Tensor], Tensor]) -> None:
    """It is a row of bytes."""
    with pytest.raises(SnapshotError):
        from_bytes(changed(DELTA, lambda tensors: tensors.update(about=as_other(tensors["about"]))), BASE)


def test_a_very_long_description_is_refused_as_bytes() -> None:
    """As a list of numbers it would take eight times its memory."""
    long = torch.full((LARGEST_ABOUT + 1,), ord(" "), dtype=torch.uint8)

    with pytest.raises(SnapshotError, match=r"its description is torch\.uint8 of shape"):
        from_bytes(changed(DELTA, lambda tensors: tensors.update(about=long)), BASE)


@pytest.mark.parametrize("size", [2**40, 2**62, 2**63, 2**64, 10**30])
def test_a_shape_of_any_size_is_refused(size: int) -> None:
    """One with a side of 0 has no bytes, so the container lets the other side be anything."""
    header = json.dumps({"about": {"dtype": "U8", "shape": [0, size], "data_offsets": [0, 0]}}).encode()

    with pytest.raises(SnapshotError):
        from_bytes(len(header).to_bytes(8, "little") + header)


def test_an_element_that_changed_twice_is_refused() -> None:
    """Which of its values counts would depend on the machine."""

    def twice(tensors: dict[str, Tensor]) -> None:
        name = next(name for name in tensors if name.startswith("changed.") and len(tensors[name]) > 1)
        tensors[name][1] = tensors[name][0]

    with pytest.raises(SnapshotError, match="not in ascending order"):
        from_bytes(changed(DELTA, twice), BASE)


@pytest.mark.parametrize("name", sorted(load(DELTA)))
def test_a_missing_tensor_is_refused(name: str) -> None:
    """Each one is needed."""
    with pytest.raises(SnapshotError):
        from_bytes(changed(DELTA, lambda tensors: tensors.pop(name)), BASE)


@pytest.mark.parametrize("name", ["stowaway", "bank.more", "values.tail.c", "values.tail.b", "weights"])
def test_an_extra_tensor_is_refused(name: str) -> None:
    """Nothing travels along unread."""
    with pytest.raises(SnapshotError, match=rf"1 tensors that do not belong to it \({name} first\)"):
        from_bytes(changed(DELTA, lambda tensors: tensors.update({name: torch.ones(1)})), BASE)


def test_a_weight_that_is_not_listed_is_refused() -> None:
    """One more tensor among the weights would change the network."""
    with pytest.raises(SnapshotError, match="other weights than it lists"):
        from_bytes(changed(DELTA, lambda tensors: tensors.update({"weights.tail.c": torch.ones(1)})), BASE)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("bank.shots", torch.tensor([5])),
        ("bank.shots", torch.tensor([5.0, 20.0])),
        ("bank.shots", torch.tensor([0, 20])),
        ("bank.held", torch.tensor([2, 2, 2])),
        ("bank.held", torch.tensor([0, 2])),
        ("bank.held", torch.tensor([2, 4])),  # of a capacity of three
        ("bank.initial", torch.ones(2, 5)),
        ("bank.initial", torch.ones(8)),
        ("bank.initial", torch.ones(2, 4, dtype=torch.float64)),
        ("bank.copies", torch.ones(2, 3, 5)),
        ("bank.copies", torch.ones(2, 4)),
        ("bank.copies", torch.ones(3, 3, 4)),
        ("bank.statistics.mean", torch.ones(2, 3)),
        ("bank.statistics.factor", torch.ones(2, 2, 4)),
        ("space.origin", torch.ones(1)),
        ("space.projection", torch.ones(4, 3)),
        ("changed.tail.a", torch.tensor([0], dtype=torch.int32)),
        ("changed.tail.a", torch.tensor([0, 6], dtype=torch.int32)),
        ("changed.tail.a", torch.tensor([-1, 1], dtype=torch.int32)),
        ("changed.tail.a", torch.arange(2.0)),
        ("values.tail.a", torch.ones(1)),
        ("values.tail.a", torch.ones(2, dtype=torch.float64)),
        ("values.tail.a", torch.tensor(1.0)),
        ("weights.tail.b", torch.ones(4)),
        ("weights.tail.b", torch.ones(2, 2, dtype=torch.float64)),
    ],
)
def test_a_tensor_that_does_not_fit_the_others_is_refused(name: str, other: Tensor) -> None:
    """By its shape, its type, or numbers that cannot be."""
    with pytest.raises(SnapshotError, match="incomplete or inconsistent"):
        from_bytes(changed(DELTA, lambda tensors: tensors.update({name: other})), BASE)


@pytest.mark.parametrize(
    "other",
    [
        {},
        BASE | {"tail.a": torch.full((3, 2), 1e-7)},
        {"tail.a": BASE["tail.a"], "tail.c": BASE["tail.b"]},
        BASE | {"tail.count": torch.tensor(8)},
        BASE | {"tail.a": -torch.zeros(3, 2)},
    ],
    ids=["none", "other values", "another name", "one more", "minus zero"],
)
def test_a_difference_needs_the_base_it_was_taken_from(other: dict[str, Tensor]) -> None:
    """Any other would give a network that nobody has measured."""
    with pytest.raises(SnapshotError, match="written against other base weights"):
        from_bytes(DELTA, other)


def test_a_whole_snapshot_needs_no_base() -> None:
    """And takes none."""
    with pytest.raises(SnapshotError, match="written against other base weights"):
        from_bytes(WHOLE, BASE)

    assert torch.equal(from_bytes(WHOLE).weights["tail.a"], STATE.weights["tail.a"])


def test_the_fingerprint_knows_names_and_bits_and_no_order() -> None:
    """Equal weights have one fingerprint however they are listed."""
    one, two = torch.ones(2), torch.tensor([0.0, 1.0])

    assert fingerprint({"a": one, "b": two}) == fingerprint({"b": two.clone(), "a": one.clone()})
    others = [{"a": two, "b": one}, {"a": one}, {"a": one, "c": two}, {"a": one, "b": -two}, {}]
    assert fingerprint({"a": one, "b": two}) not in {fingerprint(other) for other in others}


def test_no_pickle_is_involved(monkeypatch: pytest.MonkeyPatch, bits: Bits) -> None:
    """Neither way: a snapshot is data, and a pickle is no snapshot."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was pickled")

    pickled = pickle.dumps({"about": "nothing"})
    for name in ("dumps", "dump", "loads", "load", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(torch, "save", refuse)

    restored = from_bytes(to_bytes(STATE, BASE), BASE)
    with pytest.raises(SnapshotError):
        from_bytes(pickled)

    assert bits(restored) == bits(STATE)
