"""How many views of a picture teaching looks at."""

import torch

from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, NearestClassMean
from core.space import Space
from learners.stored_images import AUGMENTED, views_to_teach_with
from learners.taught_class import learn_class


def test_several_pictures_are_taught_by_their_centre_views() -> None:
    """Each is measured against the others, which takes no more of them."""
    assert [views_to_teach_with(pictures) for pictures in (2, 5, 100)] == [0, 0, 0]


def test_a_picture_that_comes_alone_has_views_to_be_measured_against() -> None:
    """With its centre view alone it would be at no distance from itself, and everything else unknown."""
    known = NearestClassMean(Space("cosine"), PrototypeBank.empty(8, 1), Certainty())
    features = torch.rand(1, 1 + views_to_teach_with(1), 8, generator=torch.Generator().manual_seed(0))

    new = learn_class(known, features, ClassId(1))

    assert views_to_teach_with(1) == AUGMENTED
    assert float(new.held_out[0]) > 0
