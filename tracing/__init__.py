"""Traces in OpenTelemetry's form: one from a request to the session that it queued.

Off unless a collector is set: then there is no tracer, and every function here is one comparison. OpenTelemetry itself
is imported only when traces are on.
"""
