"""The commands of `protoquad bench`."""
