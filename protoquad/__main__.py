"""`python -m protoquad`: how `serve` starts its worker, whatever the PATH."""

from protoquad.main import app

app()
