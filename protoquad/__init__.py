"""The command line: the one place that wires everything together."""
