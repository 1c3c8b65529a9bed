"""Messages on Redis that save somebody a look at the table: a session is ready, a model has changed.

The row is the truth. What gets lost here is found in the table a moment later, so nothing here makes anyone wait, and
nothing here raises.
"""
