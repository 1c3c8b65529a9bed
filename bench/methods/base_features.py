"""Features under the network of the base session: equal in every session of a run, so those of base images are kept."""

from weakref import WeakKeyDictionary

from torch import Tensor

from bench.methods.contract import SessionContext
from core.state import LearnerState
from core.views import LabelledViews, features_of, trainable_part

_KEPT: WeakKeyDictionary[LabelledViews, tuple[LearnerState, Tensor]] = WeakKeyDictionary()


def base_features(session: SessionContext, images: LabelledViews) -> Tensor:
    """Of every view, (n, v, M)."""
    part = trainable_part(session.base_network, session.setup.incremental.scope).to(session.device)
    return features_of(part, images, session.device)


def features_of_base_images(session: SessionContext) -> Tensor:
    """Of the centre view of every base image, (n, M)."""
    images = session.all_base_images
    kept = _KEPT.get(images)
    if kept is None or kept[0] is not session.base:
        kept = _KEPT[images] = (session.base, base_features(session, images.centre())[:, 0])
    return kept[1]
