"""The errors that the store raises on purpose, as one tree.

StoreError
├── NotThere            the requested model, class, version, session or key does not exist
├── NameTaken           a model or class with this name exists already
├── UnusableName        the text cannot be the name of a model or class
├── Conflict            the request does not fit the current state
│   └── LeaseLost       another worker has taken the session over; this one must write nothing
├── KeyReused           the same idempotency key came with another request
├── LimitReached        one more would exceed a setting
├── SchemaMismatch      the database was made by another release
└── UnusableArchive     the file is not an archive, or not one that can be imported
"""


class StoreError(Exception):
    """Base of all of them."""


class NotThere(StoreError): ...


class NameTaken(StoreError): ...


class UnusableName(StoreError): ...


class Conflict(StoreError): ...


class LeaseLost(Conflict): ...


class KeyReused(StoreError): ...


class LimitReached(StoreError): ...


class SchemaMismatch(StoreError): ...


class UnusableArchive(StoreError): ...
