"""The commands of `pq`, one file each; `protoquad` has the same."""
