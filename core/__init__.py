"""Learning in PyTorch, pure: tensors and bytes in, tensors out; no disk, network, clock, threads or settings."""
