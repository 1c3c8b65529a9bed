"""All errors of the learning core, as one tree.

ProtoquadError
├── ImageError                 this image cannot be used; others may be fine
│   ├── EmptyImage             no bytes
│   ├── NotAnImage             no image format was recognised
│   ├── UnsupportedFormat      an image, but of a format that is not accepted
│   ├── ZeroSizeImage          a width or height of zero
│   ├── ImageTooLarge          more pixels than allowed; checked before decoding
│   ├── ImageTooCostly         takes more time or memory to decode than is allowed
│   └── BrokenImage            begins as an image but cannot be decoded to its end
├── BackboneError
│   ├── UnknownBackbone        no such name in the registry
│   ├── WeightsMissing         the weights are not installed, or the file does not exist
│   └── WeightsMismatch        weights of another network
├── LearningError
│   ├── NoImages               a class without an image
│   ├── DuplicateClass         a class id that the bank holds already
│   ├── UnknownClass           a class id that the bank does not hold
│   ├── WrongShape             vectors of another backbone's size
│   └── Diverged               training reached numbers that are not finite
├── SnapshotError              bytes that are not a snapshot, or not of this backbone
└── SessionCancelled           the caller asked a session to stop
"""


class ProtoquadError(Exception):
    """Base of every error raised on purpose."""


class ImageError(ProtoquadError):
    """A single image cannot be used."""


class EmptyImage(ImageError): ...


class NotAnImage(ImageError): ...


class UnsupportedFormat(ImageError): ...


class ZeroSizeImage(ImageError): ...


class ImageTooLarge(ImageError): ...


class ImageTooCostly(ImageError): ...


class BrokenImage(ImageError): ...


class BackboneError(ProtoquadError):
    """A backbone cannot be built as asked."""


class UnknownBackbone(BackboneError): ...


class WeightsMissing(BackboneError): ...


class WeightsMismatch(BackboneError): ...


class LearningError(ProtoquadError):
    """A session was given something it cannot learn from."""


class NoImages(LearningError): ...


class DuplicateClass(LearningError): ...


class UnknownClass(LearningError): ...


class WrongShape(LearningError): ...


class Diverged(LearningError): ...


class SnapshotError(ProtoquadError):
    """Bytes that are not the state of a learner."""


class SessionCancelled(ProtoquadError):
    """Raised between two steps of a session when its caller asked it to stop."""
