"""Everything the store refuses, as one tree.

StoreError
├── NotThere            a model, class, version or session that was asked for does not exist
├── NameTaken           a model or class of that name exists already
├── UnusableName        a text that may not name a model or class
├── Conflict            the request does not fit the state that the thing is in
│   └── LeaseLost       another worker has taken the session over; whatever this one did must not be written
├── LimitReached        one more would be more than a setting allows
└── SchemaMismatch      the database was made by another release
"""


class StoreError(Exception):
    """Base of every error raised on purpose."""


class NotThere(StoreError): ...


class NameTaken(StoreError): ...


class UnusableName(StoreError): ...


class Conflict(StoreError): ...


class LeaseLost(Conflict): ...


class LimitReached(StoreError): ...


class SchemaMismatch(StoreError): ...
