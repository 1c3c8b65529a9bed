"""Load benchmarks: each server is a process of its own and is loaded by another process, in turns within one run."""
