"""Joint-CNN (Tao et al., CVPR 2020): trained on the base images and all shots so far together.

It breaks the rule that old images are gone, and is meant as what could be had without it. As in the paper nothing
balances many base images against five shots. Each session starts from the network of the base session.
"""

import torch

from bench.methods.contract import Method, Outcome, RivalValues, SessionContext
from bench.methods.head_training import means_of, network_of, outcome_of, train_head
from core.views import LabelledViews


def learn(session: SessionContext) -> Outcome:
    network = session.base_network
    base, shots = session.base.bank, session.all_shots
    means = dict(zip(shots.class_ids, means_of(session, network, shots), strict=True))
    later = [class_id for class_id in session.class_ids if class_id not in base]
    rows = torch.cat([base.prototypes, torch.stack([means[class_id] for class_id in later])])
    start = network_of(session, network, rows)
    images: LabelledViews = session.all_base_images.joined(shots)
    return outcome_of(session, train_head(session, start, images, session.setup.values))


JOINT = Method(learn, knobs=("rival.rate", "rival.epochs"), defaults=RivalValues(epochs=5), keeps="images")
