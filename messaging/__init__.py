"""Messages on Redis that save a poll: a session is ready, a model has changed.

The row in the database is the truth. What a lost message would have said is found by polling a moment later, so nothing
here blocks its caller, and nothing here raises.
"""
