"""torchvision is importable beside any build of torch, and its own operators are never stood in for."""

import subprocess
import sys

import pytest
import torch

from core import torchvision_ops
from core.torchvision_ops import make_torchvision_importable


def run(script: str) -> str:
    """What a script prints in an interpreter of its own, where nobody has imported torchvision yet."""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_torchvision_can_be_imported_afterwards() -> None:
    """Its models are there to be built, and asking twice declares nothing twice."""
    printed = run(
        "from core.torchvision_ops import make_torchvision_importable as make\n"
        "first, second = make(), make()\n"
        "import torchvision\n"
        "print(first is second, torchvision.models.resnet18(weights=None).fc.out_features)"
    )

    assert printed == "True 1000"


def test_the_operators_are_declared_where_torchvision_cannot_load_its_own() -> None:
    """Beside a torch that its extension does not fit, `nms` and `qnms` exist all the same."""
    printed = run(
        "import torch\n"
        "from core import torchvision_ops\n"
        "torchvision_ops._own_operators_load = lambda: False\n"
        "library = torchvision_ops.make_torchvision_importable()\n"
        "print(library.ns, hasattr(torch.ops.torchvision, 'nms'), hasattr(torch.ops.torchvision, 'qnms'))"
    )

    assert printed == "torchvision True True"


def test_nothing_is_declared_where_torchvision_loads_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second declaration of the same operator would be an error of torch's."""
    declared: list[object] = []
    monkeypatch.setattr(torchvision_ops, "_own_operators_load", lambda: True)
    monkeypatch.setattr(torch.library, "Library", lambda *arguments: declared.append(arguments))

    library = make_torchvision_importable.__wrapped__()

    assert library is None
    assert declared == []


def test_a_missing_torchvision_has_no_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package there is no extension to load."""
    monkeypatch.setattr(torchvision_ops.importlib.util, "find_spec", lambda name: None)  # noqa: ARG005

    assert torchvision_ops._own_operators_load() is False
