"""`protoquad bench cost`: seconds and memory of one session."""

from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.cost import measure_costs
from bench.display import console
from protoquad.plain_errors import plain_errors


def cost(backbone: BackboneName = "efficientnet_lite0", out: Out = None) -> None:
    """Seconds and memory of one session, trunk included: by its size, and by the number of known classes."""
    with plain_errors():
        costs = measure_costs(backbone)
    table = Table("session", "known classes", "seconds", "peak memory, MB", title=f"one session on {backbone}")
    for entry in costs:
        size = f"{entry['ways']}-way {entry['shots']}-shot"
        table.add_row(size, str(entry["past"]), f"{entry['seconds']:.1f}", f"{entry['megabytes']:.0f}")
    console.print(table)
    results.save(out, "cost", {"costs": costs, "backbone": backbone})
