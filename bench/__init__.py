"""Benchmarks: accuracy on public data sets, and the speed of the service. Not part of the product's wheel or image."""
