"""The load benchmark: every server a process of its own, driven from another, all in one run."""
