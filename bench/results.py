"""Results as JSON files, with everything needed to repeat them."""

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bench.fscil import RunResult
from bench.methods import Setup


def as_json(result: RunResult, setup: Setup, about: dict[str, Any]) -> dict[str, Any]:
    evaluation = result.evaluation
    return {
        "accuracy": [round(value, 2) for value in evaluation.accuracy],
        "average": _rounded(evaluation.average),
        "pd": _rounded(evaluation.performance_drop),
        "bwt": _rounded(evaluation.backward_transfer),
        "base": _rounded(evaluation.base),
        "novel": _rounded(evaluation.novel),
        "harmonic_mean": _rounded(evaluation.harmonic_mean),
        "seconds": [round(value, 1) for value in result.seconds],
        "promoted": [None if verdict is None else verdict.promoted for verdict in result.verdicts],
        "seed": setup.incremental.seed,
        **about,
        "configuration": {**asdict(setup), "rival": asdict(setup.values)},
    }


def save(folder: Path | None, name: str, content: dict[str, Any]) -> None:
    """Write `name`.json, with the command, the commit and the machine; without a folder, nothing."""
    if folder:
        file = folder / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        origin = {"command": command(), "commit": commit(), "machine": machine()}
        file.write_text(json.dumps({**content, **origin}, indent=2, ensure_ascii=False) + "\n")


def command() -> str:
    """The command line of this run; absolute paths are shortened to their last part."""
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    return shlex.join(["protoquad", *(re.sub(r"=/\S*/", "=", word) for word in words)])


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """The commit of the code in this folder, marked if the tree has changes; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def machine() -> dict[str, Any]:
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
