"""Benchmarks: few-shot class-incremental accuracy on public data sets."""
