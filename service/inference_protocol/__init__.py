"""The Open Inference Protocol, version 2, over HTTP: predictions for programs that speak it, such as Triton's clients.

Another form of `/predict`, and not another way to an answer: the same scopes, limits, queue and versions.
"""
