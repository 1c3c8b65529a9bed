"""All attacks at length: `python -m tests.hostile --seconds 20`. Ends with 1 if anything did not hold."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.hostile.attacks import ATTACKS
from tests.hostile.judging import Besieged, Bounds

DEFAULTS = {"PROTOQUAD_BACKBONE": "efficientnet_lite0", "PROTOQUAD_ENGINE": "auto"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15, help="how long each attack goes on")
    parser.add_argument("--attack", choices=sorted(ATTACKS), action="append", help="only this one; may be repeated")
    parser.add_argument("--small", action="store_true", help="a small network that starts quickly")
    chosen = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory(prefix="protoquad-hostile-") as folder:
        besieged = Besieged(Path(folder) / "home", **({} if chosen.small else DEFAULTS))
        try:
            print(f"quiet: a prediction takes {besieged.quiet * 1000:.0f} ms (p99)", flush=True)
            for name in chosen.attack or ATTACKS:
                report = besieged.suffer(name, chosen.seconds, 1.0, Bounds())
                print(report, flush=True)
                failed += [name] if report.faults else []
        finally:
            besieged.close()
    print(f"{len(failed)} of {len(chosen.attack or ATTACKS)} attacks did harm: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
