"""Which weights a session may change, and that all others keep every bit."""

import pytest
import torch
from torch import Tensor, nn

from core.selection import Masks, freeze_unselected, mask_gradients, smallest_weights

WEIGHTS = {"0.weight", "3.weight", "4.weight"}
TOTAL = 8 * 3 * 9 + 8 * 4 * 4 + 6 * 8  # of the network below, without biases and batch-norm


def network() -> nn.Sequential:
    """Convolution, batch-norm, another convolution in two halves, and a linear layer, as the sessions see one."""
    torch.manual_seed(0)
    first, norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
    first.weight.data.mul_(5)  # a layer of large weights gives its share all the same
    nn.init.uniform_(norm.weight)
    nn.init.uniform_(norm.bias)
    return nn.Sequential(first, norm, nn.ReLU(), nn.Conv2d(8, 8, 2, groups=2), nn.Linear(8, 6)).eval()


def output(module: nn.Sequential) -> Tensor:
    images = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    features: Tensor = module[:4](images)
    outputs: Tensor = module[4](features.mean((2, 3)))
    return outputs


def train(module: nn.Sequential, masks: Masks, *, steps: int = 4, decay: float = 0.01) -> None:
    """Steps of SGD with momentum, as a session takes them."""
    optimiser = torch.optim.SGD(freeze_unselected(module, masks), lr=0.01, momentum=0.9)
    for _ in range(steps):
        optimiser.zero_grad()
        output(module).square().sum().backward()
        mask_gradients(module, masks, decay)
        optimiser.step()


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().view(torch.int32)


@pytest.mark.parametrize("budget", [10, 40, 200, TOTAL])
def test_about_as_many_weights_are_selected_as_the_budget_says(budget: int) -> None:
    """Off by no more than half a weight for each layer."""
    masks = smallest_weights(network(), budget)

    assert abs(sum(int(mask.sum()) for mask in masks.values()) - budget) <= len(masks) / 2


def test_a_budget_beyond_the_network_selects_every_weight() -> None:
    """There is no more to select than there is."""
    masks = smallest_weights(network(), 10 * TOTAL)

    assert sum(int(mask.sum()) for mask in masks.values()) == TOTAL


def test_no_budget_selects_nothing() -> None:
    """A fraction of zero trains nothing, and the optimiser gets nothing."""
    module = network()

    masks = smallest_weights(module, 0)

    assert not any(mask.any() for mask in masks.values())
    assert freeze_unselected(module, masks) == []


def test_every_layer_gives_its_smallest_weights() -> None:
    """No weight left alone is smaller than one selected in the same layer, and all layers give the same share."""
    module = network()

    masks = smallest_weights(module, TOTAL // 4)

    assert set(masks) == WEIGHTS
    for name, mask in masks.items():
        size = module.get_parameter(name).detach().abs()
        assert mask.shape == size.shape
        assert size[mask].max() <= size[~mask].min()
        assert float(mask.float().mean()) == pytest.approx(0.25, abs=0.5 / mask.numel())


def test_size_is_meant_without_sign() -> None:
    """A large negative weight is large."""
    layer = nn.Linear(4, 1, bias=False)
    layer.weight.data = torch.tensor([[-9.0, 1.0, -0.5, 2.0]])

    masks = smallest_weights(layer, 2)

    assert masks["weight"].tolist() == [[False, True, True, False]]


def test_equal_weights_do_not_exceed_the_budget() -> None:
    """A layer of equal weights gives its share and not all of itself."""
    layer = nn.Linear(10, 10, bias=False)
    nn.init.zeros_(layer.weight)

    masks = smallest_weights(layer, 30)

    assert int(masks["weight"].sum()) == 30


def test_a_module_without_weights_has_nothing_to_select() -> None:
    """Nothing divides by zero."""
    masks = smallest_weights(nn.BatchNorm1d(4), 10)

    assert masks == {}


def test_biases_and_batch_norm_are_never_trained() -> None:
    """The optimiser is given the weights of layers, and only they take gradients."""
    module = network()

    chosen = freeze_unselected(module, smallest_weights(module, 10 * TOTAL))

    assert {name for name, parameter in module.named_parameters() if parameter.requires_grad} == WEIGHTS
    assert {id(parameter) for parameter in chosen} == {id(module.get_parameter(name)) for name in WEIGHTS}


def test_unselected_elements_keep_every_bit_and_selected_ones_move() -> None:
    """Momentum and decay included; batch-norm keeps its statistics too."""
    module = network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    masks = smallest_weights(module, TOTAL // 4)

    train(module, masks)

    for name, tensor in module.state_dict().items():
        if name in masks:
            unchanged = bits(before[name]) == bits(tensor)
            assert torch.equal(~masks[name], unchanged)
        else:
            assert torch.equal(before[name], tensor)


def test_decay_shrinks_selected_weights_only() -> None:
    """A step moves a selected weight by the rate times (slope + decay · weight)."""
    module = network()
    masks = smallest_weights(module, TOTAL // 4)
    before = {name: module.get_parameter(name).detach().clone() for name in WEIGHTS}
    slopes = torch.autograd.grad(output(module).square().sum(), [module.get_parameter(name) for name in before])

    train(module, masks, steps=1, decay=0.5)

    for (name, weight), slope in zip(before.items(), slopes, strict=True):
        expected = weight - 0.01 * (slope + 0.5 * weight) * masks[name]
        assert torch.allclose(expected, module.get_parameter(name), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("slope", [float("nan"), float("inf"), -1.0])
def test_an_unselected_element_has_no_slope_whatever_its_gradient(slope: float) -> None:
    """A loss that explodes does not reach what is frozen: zero times infinity would not be a number."""
    layer = nn.Linear(4, 3, bias=False)
    masks = smallest_weights(layer, 6)
    layer.weight.grad = torch.full_like(layer.weight, slope)

    mask_gradients(layer, masks, weight_decay=0.1)

    assert (bits(layer.weight.grad)[~masks["weight"]] == 0).all()
    assert (bits(layer.weight.grad)[masks["weight"]] != 0).all()


def test_selection_does_not_touch_the_weights() -> None:
    """Masks are made without moving anything."""
    module = network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    freeze_unselected(module, smallest_weights(module, 50))

    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
