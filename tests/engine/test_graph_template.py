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
from openvino.tools.ovc import telemetry_utils
from torch import Tensor, nn

from core.errors import WeightsMismatch
from engine.compiled_module import CompiledModule, Engine, throughput_mode
from engine.graph_template import GraphTemplate, OpenVinoTemplate, TorchTemplate, compile_module
from engine.openvino_runner import run_on_cores

CPU = torch.device("cpu")
ENGINES: tuple[Engine, ...] = ("openvino", "torch")


def noise(count: int, side: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)


class Pixels(nn.Module):
    """From pixels to numbers that a network computes with."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 127.5 - 1


@pytest.fixture(scope="module")
def trunk() -> nn.Module:
    """A small network that takes images as a backbone's trunk does."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        layers = nn.Sequential(
            Pixels(), nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 16, 3)
        )
        layers(noise(16, 32))  # so that the batch norm has seen images
    return layers.eval()


@pytest.fixture(scope="module", params=ENGINES)
def compiled(request: pytest.FixtureRequest, trunk: nn.Module) -> CompiledModule:
    return compile_module(trunk, noise(1, 32), device=CPU, engine=request.param)


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((one - other).abs().max() / other.abs().max())


@pytest.mark.parametrize("count", [0, 1, 2, 7, 300])
def test_any_batch_size_is_answered(compiled: CompiledModule, trunk: nn.Module, count: int) -> None:
    """Compiled with an example of one image, a network takes as many as there are."""
    batch = noise(count, 32)
    with torch.no_grad():
        expected = trunk(batch)

    answer = compiled(batch)

    assert answer.shape == expected.shape
    assert count == 0 or difference(answer, expected) < 1e-3


def test_an_image_does_not_depend_on_its_batch(compiled: CompiledModule) -> None:
    """The same image among other images, and alone, gives the same activations."""
    image, others = noise(1, 32, seed=1), noise(6, 32, seed=2)

    alone = compiled(image)
    among = compiled(torch.cat([others[:4], image, others[4:]]))[4:5]

    assert difference(among, alone) < 1e-5


def test_an_answer_is_kept_when_the_next_is_asked_for(compiled: CompiledModule) -> None:
    """Each answer has memory of its own."""
    first = compiled(noise(2, 32, seed=1))
    kept = first.clone()

    compiled(noise(2, 32, seed=2))

    assert torch.equal(first, kept)


def test_images_need_not_be_contiguous(compiled: CompiledModule, trunk: nn.Module) -> None:
    """A mirrored or transposed view of a batch is read as it looks, not as it lies in memory."""
    batch = noise(2, 32).transpose(2, 3)
    with torch.no_grad():
        expected = trunk(batch)

    answer = compiled(batch)

    assert difference(answer, expected) < 1e-3


def test_an_answer_carries_no_gradient(compiled: CompiledModule) -> None:
    """It is a plain tensor of single precision on the CPU, whatever the parameters ask for."""
    answer = compiled(noise(1, 32))

    assert (answer.requires_grad, answer.dtype, answer.device) == (False, torch.float32, CPU)


def test_several_threads_may_ask_at_once(compiled: CompiledModule) -> None:
    """A service computes requests in parallel; each gets the answer to its own image."""
    batches = [noise(2, 32, seed=seed) for seed in range(4)]
    expected = [compiled(batch) for batch in batches]
    together, outcomes = threading.Barrier(len(batches)), [""] * len(batches)

    def ask(number: int) -> None:
        together.wait(timeout=30)
        try:
            differences = [difference(compiled(batches[number]), expected[number]) for _ in range(20)]
            outcomes[number] = "right" if max(differences) < 1e-5 else "wrong"
        except RuntimeError as error:
            outcomes[number] = str(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert outcomes == ["right"] * len(batches)


@pytest.mark.parametrize(("engine", "devices"), [("auto", {"CPU"}), ("openvino", {"CPU"}), ("torch", set())])
def test_openvino_is_the_default_on_a_cpu(monkeypatch: pytest.MonkeyPatch, engine: Engine, devices: set[str]) -> None:
    """Left to choose, a CPU takes OpenVINO; torch is taken when it is asked for."""
    seen: list[str] = []
    genuine: Callable[..., object] = openvino.compile_model

    def spy(model: object, device: str, options: object) -> object:
        seen.append(device)
        return genuine(model, device, options)

    monkeypatch.setattr(openvino, "compile_model", spy)

    compile_module(nn.Conv2d(3, 4, 3), noise(1, 8).float(), device=CPU, engine=engine)

    assert set(seen) == devices


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_cuda_agrees_with_the_cpu(trunk: nn.Module) -> None:
    """On CUDA torch runs the network and answers on the CPU."""
    batch = noise(2, 32)
    with torch.no_grad():
        expected = trunk(batch)

    answer = compile_module(deepcopy(trunk), batch[:1], device=torch.device("cuda"))(batch)

    assert answer.device == CPU
    assert difference(answer, expected) < 1e-2


# Templates


def small_network(seed: int = 0) -> nn.Module:
    """A convolution, and a batch norm that has seen images."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    network(torch.randn(16, 3, 8, 8))
    return network.eval()


@pytest.mark.parametrize("made", [OpenVinoTemplate.of, lambda module, _example: TorchTemplate(module, CPU)])
def test_a_template_computes_with_the_weights_it_is_bound_to(
    made: Callable[[nn.Module, Tensor], GraphTemplate],
) -> None:
    """One conversion serves every version, each with its own weights, for any number of images."""
    one, other = small_network(1), small_network(2)
    template = made(one, torch.zeros(1, 3, 8, 8))

    for network in (other, one):
        compiled = template.bind(network.state_dict(), latency=True)
        for count in (1, 2, 7):
            batch = torch.randn(count, 3, 8, 8)
            with torch.no_grad():
                expected = network(batch)
            assert difference(compiled(batch), expected) < 1e-5


def test_a_bound_network_keeps_the_weights_it_was_bound_to() -> None:
    """Training the module afterwards changes nothing until it is bound again."""
    network, batch = small_network(), torch.randn(2, 3, 8, 8)
    template = OpenVinoTemplate.of(network, batch[:1])
    compiled = template.bind(network.state_dict(), latency=True)
    before = compiled(batch)

    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2)

    assert torch.equal(compiled(batch), before)
    assert not torch.equal(template.bind(network.state_dict(), latency=True)(batch), before)


@pytest.mark.parametrize("latency", [True, False])
def test_an_image_that_is_alone_gets_all_cores_where_that_is_asked_for(latency: bool) -> None:
    """A small graph is as fast on one core, and is not held in memory twice."""
    graph = openvino.convert_model(small_network(), example_input=torch.zeros(1, 3, 8, 8))
    graph.reshape([1, 3, 8, 8])
    batch = torch.randn(1, 3, 8, 8)

    compiled = run_on_cores(graph, latency=latency, cores=2)

    assert (throughput_mode(compiled) is not compiled) == latency
    assert difference(compiled(batch), throughput_mode(compiled)(batch)) < 1e-6


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


def test_when_one_image_fails_the_others_are_waited_for() -> None:
    """They write to memory that goes away with the error; and the next batch finds its requests free."""
    network, batch = small_network(), torch.randn(3, 3, 8, 8)
    compiled: Any = OpenVinoTemplate.of(network, batch[:1]).bind(network.state_dict(), latency=False)
    expected = compiled(batch)
    requests = compiled._of_thread.requests
    first, second = requests[:2]
    requests[:2] = watched, _ = Watched(first), Failing(second)

    with pytest.raises(RuntimeError, match="no memory"):
        compiled(batch)

    assert not watched.running
    requests[1] = second
    assert torch.equal(compiled(batch), expected)


def test_a_network_of_another_shape_is_refused() -> None:
    """Weights that do not fit are never bound to the wrong places."""
    template = OpenVinoTemplate.of(nn.Linear(3, 2), torch.zeros(1, 3))

    with pytest.raises(WeightsMismatch, match="bias is missing"):
        template.bind(nn.Linear(3, 2, bias=False).state_dict(), latency=True)


def test_openvino_reports_to_nobody() -> None:
    """It would send an event to its maker for every import and conversion, each from a fork of this process."""
    assert telemetry_utils.tm.__name__ == "openvino.tools.ovc.telemetry_stub"


def test_a_network_that_is_dropped_leaves_nothing_behind() -> None:
    """A service binds one for every version: what is kept of them would add up."""
    template = OpenVinoTemplate.of(nn.Linear(4, 4), torch.zeros(1, 4))
    network = nn.Linear(4, 4)
    weight = weakref.ref(network.weight)

    compiled = template.bind(network.state_dict(), latency=True)
    compiled(torch.zeros(2, 4))
    del network, compiled
    gc.collect()

    assert weight() is None
