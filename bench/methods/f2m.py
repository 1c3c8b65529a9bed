"""F2M (Shi et al., "Overcoming Catastrophic Forgetting in Incremental Few-Shot Learning by Finding Flat Minima", 2021).

The base session looks for a minimum that is flat: its loss is that of weights with random noise of up to a bound, so
that all weights within the bound are nearly as good. Later sessions learn new classes from their shots against all
prototypes, and no weight leaves the bound around the base session's. Old prototypes stay, new ones are class means. The
paper's term that fixes prototypes under noise is left out: the bound is small against the weights here. The base
session that all methods share goes on in this way for a quarter of its epochs.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bench.methods.contract import Method, Outcome, RivalValues, SessionContext
from bench.methods.head_training import network_of, outcome_of, starting_network, train_head
from core.base_training import Objective, Step
from core.prototypes import mean_prototypes
from core.views import features_of

BOUND = 0.01  # the paper's b, at strength 1
DRAWS = 2  # of the noise, in a step


def flat_minimum(values: RivalValues) -> Objective:
    def objective(step: Step) -> Tensor:
        losses = [step.cross_entropy(_with_noise(step, values.strength * BOUND)) for _ in range(DRAWS)]
        return torch.stack(losses).mean()

    return objective


def learn(session: SessionContext) -> Outcome:
    values = session.setup.values
    start = starting_network(session)
    base = network_of(session, session.base_network, start.rows).part  # not the parent: the bound would move with it

    @torch.no_grad()
    def restrain(part: nn.Module) -> None:
        for parameter, middle in zip(part.parameters(), base.parameters(), strict=True):
            parameter.clamp_(middle - values.strength * BOUND, middle + values.strength * BOUND)

    network = train_head(session, start, session.shots, values, restrain=restrain)
    embeddings = session.state.space.embed(features_of(network.part, session.shots, session.device))
    means = mean_prototypes(embeddings, session.shots.owners, len(session.shots.class_ids))
    return outcome_of(session, network, torch.cat([session.state.bank.prototypes, means]))


def _with_noise(step: Step, bound: float) -> Tensor:
    def noise(parameter: Tensor) -> Tensor:
        return (bound * (2 * torch.rand(parameter.shape, generator=step.generator) - 1)).to(parameter.device)

    noisy = {name: parameter + noise(parameter) for name, parameter in step.part.named_parameters()}
    features: Tensor = functional_call(step.part, noisy, (step.inputs,))
    return features


F2M = Method(
    learn,
    defaults=RivalValues(rate=1e-3, head_rate=0.0),
    objective=flat_minimum,
    objective_reads=("strength",),
)
