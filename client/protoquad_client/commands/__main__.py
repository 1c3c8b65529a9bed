"""`python -m protoquad_client.commands`: `pq`, whatever the PATH."""

from protoquad_client.commands.pq import pq

pq(prog_name="pq")
