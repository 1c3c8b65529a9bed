"""Images as sessions see them: labels of any numbers, several views, and batches that lose nobody."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import nn

from core.backbones import Backbone
from core.errors import NoImages, WrongShape
from core.views import LabelledViews, as_batch, features_of, shuffled_batches, trainable_part

CPU = torch.device("cpu")


def labelled(*labels: int, views: int = 2) -> LabelledViews:
    inputs = torch.arange(len(labels) * views * 4, dtype=torch.float32).view(len(labels), views, 4)
    return LabelledViews(inputs, torch.tensor(labels))


def test_classes_are_listed_once_and_ascending() -> None:
    """Whatever the order and the gaps of the labels; owners and counts follow that list."""
    views = labelled(60, 7, 60, 100, 7, 60)

    assert views.class_ids == (7, 60, 100)
    assert views.owners.tolist() == [1, 0, 1, 2, 0, 1]
    assert views.counts.tolist() == [2, 3, 1]


def test_there_are_as_many_images_as_labels() -> None:
    """Length and number of views are read from the inputs."""
    views = labelled(1, 2, 3, views=5)

    assert (len(views), views.views) == (3, 5)


def test_the_centre_view_is_the_first() -> None:
    """What is left is one view of every image, still with a dimension for views."""
    views = labelled(4, 5)

    centre = views.centre()

    assert torch.equal(centre.inputs, views.inputs[:, :1])
    assert centre.labels.tolist() == [4, 5]


def test_selected_images_keep_their_labels() -> None:
    """Rows come in the order they are asked for."""
    views = labelled(4, 5, 6)

    chosen = views.select(torch.tensor([2, 0]))

    assert torch.equal(chosen.inputs, views.inputs[[2, 0]])
    assert chosen.labels.tolist() == [6, 4]


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        ((3, 1, 4), 2, "3 images have 2 labels"),
        ((0, 1, 4), 1, "0 images have 1 labels"),
        ((2, 4), 2, r"\(images, views, …\) are needed, not \(2, 4\)"),
        ((2, 0, 4), 2, r"\(images, views, …\) are needed, not \(2, 0, 4\)"),
    ],
)
def test_what_does_not_fit_together_is_refused(shape: tuple[int, ...], labels: int, message: str) -> None:
    """The error says what was given."""
    with pytest.raises(WrongShape, match=message):
        LabelledViews(torch.zeros(shape), torch.zeros(labels, dtype=torch.long))


def test_no_image_is_not_enough_to_learn_from() -> None:
    """An empty set exists, but a session refuses it and so does embedding it."""
    nobody = LabelledViews(torch.zeros(0, 1, 4), torch.zeros(0, dtype=torch.long))

    with pytest.raises(NoImages, match="no image to learn from"):
        nobody.require_images()
    with pytest.raises(NoImages, match="no image to embed"):
        features_of(nn.Identity(), nobody, CPU)


def test_one_image_is_enough() -> None:
    """Requiring images raises nothing where there is one."""
    single = labelled(3)

    single.require_images()

    assert len(single) == 1


def test_the_scope_says_what_is_trained(backbone: Backbone) -> None:
    """The tail alone, or the whole network: the very modules, not copies."""
    assert trainable_part(backbone, "tail") is backbone.tail
    assert trainable_part(backbone, "all") is backbone


@pytest.mark.parametrize("batch", [1, 4, 6, 100])
def test_features_stand_where_their_images_stood(
    backbone: Backbone, activations: Callable[..., LabelledViews], batch: int
) -> None:
    """StoredImage by image and view by view, in batches that need not divide the whole."""
    views = activations([1, 2], 3, views=2)
    with torch.no_grad():
        expected = torch.stack([torch.cat([backbone.tail(view[None]) for view in shot]) for shot in views.inputs])

    features = features_of(backbone.tail, views, CPU, batch=batch)

    assert features.shape == (6, 2, 64)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)


def test_features_are_taken_in_evaluation_mode_without_gradients() -> None:
    """A module that was left in training neither drops nor learns statistics, and is left in evaluation mode."""
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.BatchNorm1d(4)).train()
    views = labelled(1, 2, 3)

    features = features_of(module, views, CPU)

    torch.testing.assert_close(features, views.inputs / (1 + 1e-5) ** 0.5)
    assert not features.requires_grad
    assert not any(part.training for part in module.modules())
    assert module[2].num_batches_tracked == 0


def test_images_stay_bytes_and_activations_become_single_precision() -> None:
    """Activations may be kept in half precision; networks take them in single."""
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    halves = torch.randn(2, 5).half()

    assert torch.equal(as_batch(images, CPU), images)
    assert as_batch(images, CPU).dtype == torch.uint8
    assert torch.equal(as_batch(halves, CPU), halves.float())


def test_images_and_maps_are_laid_out_channels_last() -> None:
    """That is the order in which convolutions are fast."""
    batch = as_batch(torch.randn(2, 3, 4, 4), CPU)

    assert batch.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("count", "size", "sizes"), [(10, 4, [4, 4, 2]), (9, 4, [4, 5]), (5, 1, [2, 3]), (3, 8, [3])])
def test_an_epoch_visits_every_row_once(count: int, size: int, sizes: list[int]) -> None:
    """A last batch of one joins the one before it: batch-norm could not train on it alone."""
    batches = list(shuffled_batches(count, size, torch.Generator().manual_seed(0)))

    visits = Counter(torch.cat(batches).tolist())
    assert [len(rows) for rows in batches] == sizes
    assert visits == dict.fromkeys(range(count), 1)


def test_the_generator_alone_decides_the_order() -> None:
    """The same seed gives the same batches, another seed others."""
    orders = [
        torch.cat(list(shuffled_batches(50, 8, torch.Generator().manual_seed(seed)))).tolist() for seed in (1, 1, 2)
    ]

    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
