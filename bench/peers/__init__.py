"""Servers that others would have written, small and fair: the same backbone, classifier and decoder as ours."""
