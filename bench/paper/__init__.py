"""The report of `protoquad bench paper`: all methods, the paper's ablations, and a verdict on each of its claims."""
