"""Messages to other processes: on Redis, that a session is ready or a model has changed; over HTTP, signed webhooks.

The row in the database is the truth. What a lost message on Redis would have said is found by polling a moment later;
a webhook's delivery that did not arrive is still in the outbox. So nothing here raises because the other side is away.
"""
