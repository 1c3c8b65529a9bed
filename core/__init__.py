"""Learning in PyTorch: no disk, network, clock or settings."""
