"""A compiled network answers as the network itself does, whichever engine runs it."""

import gc
import threading
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import openvino
import pytest
import torch
from torch import Tensor, nn

from core.backbones import Backbone
from core.errors import WeightsMismatch
from engine import compiled_module as inference
from engine.compiled_module import (
    CompiledModule,
    Engine,
    GraphTemplate,
    OpenVinoTemplate,
    TorchTemplate,
    compiled,
    on_one_core,
)

CPU = torch.device("cpu")
ENGINES: tuple[Engine, ...] = ("openvino", "torch")


def noise(count: int, side: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)


@pytest.fixture(scope="module")
def trunk(backbone: Backbone) -> nn.Module:
    return deepcopy(backbone.trunk)


@pytest.fixture(scope="module", params=ENGINES)
def forward(request: pytest.FixtureRequest, trunk: nn.Module) -> CompiledModule:
    return compiled(trunk, noise(1, 32), device=CPU, engine=request.param)


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((one - other).abs().max() / other.abs().max())


def test_both_engines_agree_on_the_default_backbone(lite0: Backbone) -> None:
    """The trunk that production runs gives the same activations, up to rounding."""
    batch = noise(3, 224)

    fast, plain = (compiled(lite0.trunk, batch[:1], device=CPU, engine=engine)(batch) for engine in ENGINES)

    assert fast.shape == plain.shape == (3, 192, 7, 7)
    assert difference(fast, plain) < 1e-3


@pytest.mark.parametrize("count", [0, 1, 2, 7, 300])
def test_any_batch_size_is_answered(forward: CompiledModule, trunk: nn.Module, count: int) -> None:
    """Compiled with an example of one picture, a network takes as many as there are."""
    batch = noise(count, 32)
    with torch.no_grad():
        expected = trunk(batch)

    answer = forward(batch)

    assert answer.shape == expected.shape
    assert count == 0 or difference(answer, expected) < 1e-3


def test_a_picture_does_not_depend_on_its_batch(forward: CompiledModule) -> None:
    """The same picture among other pictures, and alone, gives the same activations."""
    picture, others = noise(1, 32, seed=1), noise(6, 32, seed=2)

    alone = forward(picture)
    among = forward(torch.cat([others[:4], picture, others[4:]]))[4:5]

    assert difference(among, alone) < 1e-5


def test_an_answer_is_kept_when_the_next_is_asked_for(forward: CompiledModule) -> None:
    """Each answer has memory of its own."""
    first = forward(noise(2, 32, seed=1))
    kept = first.clone()

    forward(noise(2, 32, seed=2))

    assert torch.equal(first, kept)


def test_pictures_need_not_be_contiguous(forward: CompiledModule, trunk: nn.Module) -> None:
    """A mirrored or transposed view of a batch is read as it looks, not as it lies in memory."""
    batch = noise(2, 32).transpose(2, 3)
    with torch.no_grad():
        expected = trunk(batch)

    answer = forward(batch)

    assert difference(answer, expected) < 1e-3


def test_an_answer_carries_no_gradient(forward: CompiledModule) -> None:
    """It is a plain tensor of single precision on the CPU, whatever the parameters ask for."""
    answer = forward(noise(1, 32))

    assert (answer.requires_grad, answer.dtype, answer.device) == (False, torch.float32, CPU)


def test_several_threads_may_ask_at_once(forward: CompiledModule) -> None:
    """A service answers requests side by side; each gets the answer to its own picture."""
    batches = [noise(2, 32, seed=seed) for seed in range(4)]
    expected = [forward(batch) for batch in batches]
    together, outcomes = threading.Barrier(len(batches)), [""] * len(batches)

    def ask(number: int) -> None:
        together.wait(timeout=30)
        try:
            differences = [difference(forward(batches[number]), expected[number]) for _ in range(20)]
            outcomes[number] = "right" if max(differences) < 1e-5 else "wrong"
        except RuntimeError as error:
            outcomes[number] = str(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert outcomes == ["right"] * len(batches)


def test_openvino_keeps_the_weights_it_was_compiled_with() -> None:
    """Training the module afterwards changes nothing until it is compiled again."""
    module, batch = nn.Conv2d(3, 4, 3), noise(2, 8).float()
    before_training = compiled(module, batch[:1], device=CPU, engine="openvino")
    answer = before_training(batch)
    with torch.no_grad():
        module.weight.mul_(1.5)

    after_training = compiled(module, batch[:1], device=CPU, engine="openvino")

    assert difference(before_training(batch), answer) < 1e-5
    assert difference(after_training(batch), answer) > 1e-2


@pytest.mark.parametrize(("engine", "devices"), [("auto", {"CPU"}), ("openvino", {"CPU"}), ("torch", set())])
def test_a_cpu_is_served_by_openvino(monkeypatch: pytest.MonkeyPatch, engine: Engine, devices: set[str]) -> None:
    """Left to choose, a CPU takes OpenVINO; torch is taken when it is asked for."""
    seen: list[str] = []
    genuine: Callable[..., object] = openvino.compile_model

    def spy(model: object, device: str, options: object) -> object:
        seen.append(device)
        return genuine(model, device, options)

    monkeypatch.setattr(openvino, "compile_model", spy)

    compiled(nn.Conv2d(3, 4, 3), noise(1, 8).float(), device=CPU, engine=engine)

    assert set(seen) == devices


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_cuda_agrees_with_the_cpu(trunk: nn.Module) -> None:
    """On CUDA torch runs the network and answers on the CPU."""
    batch = noise(2, 32)
    with torch.no_grad():
        expected = trunk(batch)

    answer = compiled(deepcopy(trunk), batch[:1], device=torch.device("cuda"))(batch)

    assert answer.device == CPU
    assert difference(answer, expected) < 1e-2


# Blueprints


def small_network(seed: int = 0) -> nn.Module:
    """A convolution, and a batch norm that has seen pictures."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    network(torch.randn(16, 3, 8, 8))
    return network.eval()


@pytest.mark.parametrize("made", [OpenVinoTemplate.of, lambda module, _example: TorchTemplate(module, CPU)])
def test_a_blueprint_computes_with_the_weights_it_is_bound_to(
    made: Callable[[nn.Module, Tensor], GraphTemplate],
) -> None:
    """One conversion serves every version, each with its own weights, for any number of pictures."""
    one, other = small_network(1), small_network(2)
    blueprint = made(one, torch.zeros(1, 3, 8, 8))

    for network in (other, one):
        forward = blueprint.bound(network.state_dict(), heavy=True)
        for count in (1, 2, 7):
            batch = torch.randn(count, 3, 8, 8)
            with torch.no_grad():
                expected = network(batch)
            assert difference(forward(batch), expected) < 1e-5


def test_a_bound_network_keeps_the_weights_it_was_bound_to() -> None:
    """Training the module afterwards changes nothing until it is bound again."""
    network, batch = small_network(), torch.randn(2, 3, 8, 8)
    blueprint = OpenVinoTemplate.of(network, batch[:1])
    forward = blueprint.bound(network.state_dict(), heavy=True)
    before = forward(batch)

    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2)

    assert torch.equal(forward(batch), before)
    assert not torch.equal(blueprint.bound(network.state_dict(), heavy=True)(batch), before)


@pytest.mark.parametrize("heavy", [True, False])
def test_only_what_is_heavy_is_compiled_for_all_cores_too(heavy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is light answers as fast on one, and is not held twice."""
    monkeypatch.setattr(inference, "usable_cores", lambda: 2)
    network, batch = small_network(), torch.randn(1, 3, 8, 8)

    forward = OpenVinoTemplate.of(network, batch).bound(network.state_dict(), heavy=heavy)

    assert (on_one_core(forward) is not forward) == heavy
    assert difference(forward(batch), on_one_core(forward)(batch)) < 1e-6


class Failing:
    """A request that cannot be started."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def start_async(self) -> None:
        raise RuntimeError("no memory")


class Watched:
    """A request that remembers whether it was waited for since it was last started."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.running = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def start_async(self) -> None:
        self.running = True
        self._request.start_async()

    def wait(self) -> None:
        self._request.wait()
        self.running = False


def test_when_one_picture_fails_the_others_are_waited_for() -> None:
    """They write to memory that goes away with the error; and the next batch finds its requests free."""
    network, batch = small_network(), torch.randn(3, 3, 8, 8)
    forward: Any = OpenVinoTemplate.of(network, batch[:1]).bound(network.state_dict(), heavy=False)
    expected = forward(batch)
    requests = forward._own.requests
    first, second = requests[:2]
    requests[:2] = watched, _ = Watched(first), Failing(second)

    with pytest.raises(RuntimeError, match="no memory"):
        forward(batch)

    assert not watched.running
    requests[1] = second
    assert torch.equal(forward(batch), expected)


def test_a_network_of_another_shape_is_refused() -> None:
    """Weights that do not fit are never bound to the wrong places."""
    blueprint = OpenVinoTemplate.of(nn.Linear(3, 2), torch.zeros(1, 3))

    with pytest.raises(WeightsMismatch, match="bias is missing"):
        blueprint.bound(nn.Linear(3, 2, bias=False).state_dict(), heavy=True)


def test_a_network_that_is_dropped_leaves_nothing_behind() -> None:
    """A service binds one for every version: what is kept of them would add up."""
    blueprint = OpenVinoTemplate.of(nn.Linear(4, 4), torch.zeros(1, 4))
    network = nn.Linear(4, 4)
    weight = weakref.ref(network.weight)

    forward = blueprint.bound(network.state_dict(), heavy=True)
    forward(torch.zeros(2, 4))
    del network, forward
    gc.collect()

    assert weight() is None
