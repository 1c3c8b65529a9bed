"""A learner's state to bytes and back: safetensors only, strict both ways.

Weights are written as their difference from base weights: a session changes a tenth of the network, so a version costs
a tenth of its bytes. Reading them needs the same base weights, which a fingerprint checks.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.calibration import Statistics
from core.errors import SnapshotError
from core.scatter import Scatter
from core.space import METRICS, Space, Whitening
from core.state import LearnerState, Weights

FORMAT = "protoquad-snapshot-1"
ABOUT = "about"  # everything that is not a tensor, as JSON in a tensor of bytes: one container, one reader
LARGEST_ABOUT = 16 * 2**20  # bytes of it: a hundred thousand classes take less than one megabyte
UNUSED = {"temperature": 1.0, "threshold": None}  # nobody reads them, but earlier releases refuse to do without
SCATTERED = "protoquad-snapshot-2"  # the same, with the scatter of its classes
FIELDS = {"format", "backbone", "metric", "class_ids", "base", "whitened", "weights", *UNUSED}
NO_BASE: Weights = {}


def to_bytes(state: LearnerState, base: Weights = NO_BASE) -> bytes:
    """All of `state`; of weights that `base` holds too, only the elements that differ are written."""
    missing = [name for name in base if name not in state.weights]
    if missing:
        raise SnapshotError(f"the state lacks {len(missing)} of its base's weights ({missing[0]} first)")
    about: dict[str, Any] = {
        "format": FORMAT,
        "backbone": state.backbone,
        "metric": state.space.metric,
        "class_ids": list(state.bank.class_ids),
        "base": fingerprint(base),
        "whitened": state.space.whitening is not None,
        "weights": sorted(state.weights),
        **UNUSED,
    }
    if state.scatter is not None:
        about |= {"format": SCATTERED, "freedom": state.scatter.freedom}
        about |= {"allowance": state.space.allowance, "by_class": state.space.by_class}
    tensors = {ABOUT: torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)}
    tensors |= _bank_tensors(state.bank)
    if state.space.whitening is not None:
        tensors |= {
            "space.origin": state.space.whitening.origin,
            "space.projection": state.space.whitening.projection,
        }
    if state.scatter is not None:
        tensors["scatter"] = state.scatter.factor
    for name, tensor in state.weights.items():
        tensors |= _difference(name, tensor, base.get(name))
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def from_bytes(data: bytes, base: Weights = NO_BASE) -> LearnerState:
    """The state that was given to `to_bytes`, bit for bit; raises SnapshotError on anything else."""
    try:
        tensors = load(data)
        about = _about(tensors.pop(ABOUT))
    except Exception as error:  # torch raises any exception on malformed data, such as a shape beyond 64 bits
        raise SnapshotError(f"these bytes are not a snapshot ({type(error).__name__}: {_short(error)})") from error
    _check(about, base)
    try:
        bank = _bank(tensors, about["class_ids"])
        whitening = _whitening(tensors, bank.dim) if about["whitened"] else None
        scatter = _scatter(tensors, about["freedom"], bank.dim) if about["format"] == SCATTERED else None
        space = Space(about["metric"], whitening)
        if scatter is not None:
            space = replace(space, allowance=_allowance(about["allowance"]), by_class=_flag(about["by_class"]))
        weights = _weights(tensors, base)
        if sorted(weights) != about["weights"]:
            raise ValueError("it holds other weights than it lists")
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, OverflowError) as error:
        raise SnapshotError(f"the snapshot is incomplete or inconsistent ({_short(error)})") from error
    if tensors:
        raise SnapshotError(
            f"the snapshot holds {len(tensors)} tensors that do not belong to it ({_short(min(tensors))} first)"
        )
    return LearnerState(about["backbone"], weights, space, bank, scatter)


def fingerprint(weights: Weights) -> str:
    """Identifies base weights: the same for equal names and equal bits, whatever their order."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + b"\0")
        digest.update(weights[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


def _about(tensor: Tensor) -> Any:
    if tensor.dtype != torch.uint8 or tensor.dim() != 1 or len(tensor) > LARGEST_ABOUT:
        raise ValueError(f"its description is {tensor.dtype} of shape {tuple(tensor.shape)}")
    return json.loads(tensor.numpy().tobytes())


def _short(text: object) -> str:
    """Bounded and printable: names within a snapshot may come from anybody."""
    return "".join(character if character.isprintable() else "?" for character in str(text)[:200])


def _check(about: Any, base: Weights) -> None:
    found = about.get("format") if isinstance(about, dict) else about
    if found not in (FORMAT, SCATTERED):
        raise SnapshotError(f"the format of a snapshot is {FORMAT} or {SCATTERED}, not {_short(repr(found))}")
    fields = FIELDS if found == FORMAT else FIELDS | {"freedom", "allowance", "by_class"}
    if set(about) != fields:
        given = _short(", ".join(sorted(about)))
        raise SnapshotError(f"a snapshot has the fields {', '.join(sorted(fields))}, not {given}")
    if not isinstance(about["backbone"], str):
        raise SnapshotError(f"the snapshot's backbone {_short(repr(about['backbone']))} is not a name")
    if about["metric"] not in METRICS:
        raise SnapshotError(f"the snapshot's metric {_short(repr(about['metric']))} is not one of {', '.join(METRICS)}")
    if about["base"] != fingerprint(base):
        raise SnapshotError("the snapshot was written against other base weights than those given")


def _bank_tensors(bank: PrototypeBank) -> dict[str, Tensor]:
    return {
        "bank.shots": bank.shots,
        "bank.held": bank.held,
        "bank.initial": bank.initial,
        "bank.copies": bank.copies,
        "bank.statistics.mean": bank.statistics.mean,
        "bank.statistics.factor": bank.statistics.factor,
    }


def _bank(tensors: dict[str, Tensor], class_ids: list[int]) -> PrototypeBank:
    if any(type(class_id) is not int for class_id in class_ids) or len(set(class_ids)) != len(class_ids):
        raise ValueError("its class ids are not distinct whole numbers")
    for name in ("bank.smoothed.mean", "bank.smoothed.factor"):  # earlier releases kept what follows from the copies
        tensors.pop(name, None)
    bank = PrototypeBank(
        tuple(ClassId(class_id) for class_id in class_ids),
        tensors.pop("bank.shots"),
        tensors.pop("bank.initial"),
        tensors.pop("bank.copies"),
        tensors.pop("bank.held"),
        Statistics(tensors.pop("bank.statistics.mean"), tensors.pop("bank.statistics.factor")),
    )
    count, dim, capacity = len(bank), bank.dim, bank.capacity
    _require(bank.initial, (count, dim))
    _require(bank.copies, (count, capacity, dim))
    for counts in (bank.shots, bank.held):
        _require(counts, (count,), torch.long)
    _require(bank.statistics.mean, (count, dim))
    _require(bank.statistics.factor, (count, capacity, dim))
    if (bank.shots < 1).any() or (bank.held < 1).any() or (bank.held > capacity).any():
        raise ValueError("a class of the bank has no shot, no copy, or more copies than the bank keeps")
    return bank


def _whitening(tensors: dict[str, Tensor], dim: int) -> Whitening:
    whitening = Whitening(tensors.pop("space.origin"), tensors.pop("space.projection"))
    _require(whitening.origin, (dim,))
    _require(whitening.projection, (dim, dim))
    return whitening


def _allowance(value: object) -> float:
    if type(value) is not float or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is no allowance for few images")
    return value


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} does not say whether classes have thresholds of their own")
    return value


def _scatter(tensors: dict[str, Tensor], freedom: object, dim: int) -> Scatter:
    factor = tensors.pop("scatter")
    _require(factor, (len(factor), dim))
    if type(freedom) is not int or not 0 <= freedom < 2**53 or len(factor) > dim:
        raise ValueError("its scatter has more rows than dimensions, or no number of deviations")
    if not torch.isfinite(factor).all():
        raise ValueError("its scatter has numbers that are not finite")
    return Scatter(factor, freedom)


def _require(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"a tensor is {tensor.dtype} of shape {tuple(tensor.shape)}, not {dtype} of {shape}")


def _difference(name: str, tensor: Tensor, base: Tensor | None) -> dict[str, Tensor]:
    if base is None:
        return {f"weights.{name}": tensor}
    if base.shape != tensor.shape or base.dtype != tensor.dtype:
        raise SnapshotError(f"{name} has another shape or type than in the base weights")
    changed = (_bits(tensor) != _bits(base)).flatten().nonzero()[:, 0]
    if 2 * len(changed) >= tensor.numel():  # written whole it is smaller than with its positions
        return {f"weights.{name}": tensor}
    return {f"changed.{name}": changed.to(torch.int32), f"values.{name}": tensor.flatten()[changed]}


def _weights(tensors: dict[str, Tensor], base: Weights) -> Mapping[str, Tensor]:
    weights = {key.removeprefix("weights."): tensors.pop(key) for key in list(tensors) if key.startswith("weights.")}
    for name, tensor in base.items():
        if name in weights:
            _require(weights[name], tuple(tensor.shape), tensor.dtype)
            continue
        whole = tensor.clone().flatten()
        changed, values = tensors.pop(f"changed.{name}"), tensors.pop(f"values.{name}")
        _require(changed, (len(values),), torch.int32)
        _require(values, (len(values),), tensor.dtype)
        if (changed < 0).any() or (changed.diff() <= 0).any():
            raise ValueError(f"the positions of changed elements of {name} are not in ascending order from 0")
        whole[changed.long()] = values
        weights[name] = whole.view_as(tensor)
    return weights


def _bits(tensor: Tensor) -> Tensor:
    """For a bitwise comparison: -0.0 differs from 0.0, and NaN equals itself."""
    return tensor.view(torch.int32) if tensor.dtype == torch.float32 else tensor
