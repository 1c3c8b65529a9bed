"""What all load benchmarks share: a home that knows classes, and a load on a server by a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from bench.load.driving import Measured, plan
from bench.load.servers import Server
from core import backbones
from core.images import centre_view, decode
from core.space import Space
from core.state import Weights

Tell = Callable[[str], None]


class MakeHome(Protocol):
    """A home folder whose default model has these prototypes, and a version for each of the tails."""

    def __call__(self, home: Path, backbone: str, prototypes: Tensor, tails: Sequence[Weights] = ...) -> None: ...


def taught(backbone: str, pictures: Sequence[bytes], classes: int) -> Tensor:
    """A prototype for each picture, itself, and as many others as are asked for; (classes, M)."""
    network = backbones.as_it_comes(backbone)
    framing = network.framing
    inputs = torch.stack([centre_view(decode(one, short_side=framing.short_side), framing) for one in pictures])
    with torch.no_grad():
        own = Space("power-cosine").embed(network.eval()(inputs))
    generator = torch.Generator().manual_seed(0)
    # Others are mixed from the same features, so that they lie among them and not in an empty corner of the space.
    mixture = torch.rand(max(0, classes - len(own)), len(own), generator=generator)
    others = mixture / mixture.sum(1, keepdim=True) @ own
    return torch.cat([own, others + 0.01 * torch.rand(others.shape, generator=generator)])


def driven(server: Server, pictures: Sequence[bytes], first: int, load: dict[str, Any]) -> Measured:
    """`first`: the row of the first picture's prototype."""
    given = plan(
        port=server.port,
        ours=server.ours,
        path=server.path,
        field=server.field,
        pictures=pictures,
        expected=[first + place + 1 for place in range(len(pictures))],
        load=load,
    )
    return Measured(**answered(["-m", "bench.load.driving"], given))


def answered(command: list[str], given: bytes) -> dict[str, Any]:
    answer = subprocess.run([sys.executable, *command], input=given, capture_output=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command[:2])} failed: {answer.stderr.decode(errors='replace')[-2000:]}")
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def sentence(found: Measured) -> str:
    wrong = f", {found.wrong} WRONG ({found.first_error})" if found.wrong else ""
    return f"{found.rate:.1f} answers/s, p50 {found.p50:.1f} ms, p99 {found.p99:.1f} ms{wrong}"
