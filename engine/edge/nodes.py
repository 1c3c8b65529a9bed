"""Writes an ONNX graph as arithmetic on values: each operator and each call adds a node."""

from itertools import count
from typing import Any, Union

import numpy as np

Operand = Union["Value", int, float, "np.ndarray[Any, Any]"]


class Nodes:
    """The nodes of a graph in the order in which they were written, and its constants.

    Whole numbers become int64 constants, others float32: an expression must not mix them.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._numbers = count()

    def __call__(self, kind: str, *inputs: Operand, **attributes: Any) -> "Value":
        from onnx import helper

        value = Value(self, f"scaling_{next(self._numbers)}")
        names = [self._name(one) for one in inputs]
        self.nodes.append(helper.make_node(kind, names, [value.name], **attributes))
        return value

    def _name(self, operand: Operand) -> str:
        from onnx import numpy_helper

        if isinstance(operand, Value):
            return operand.name
        name = f"scaling_{next(self._numbers)}"
        array = np.asarray(operand)
        kind = np.int64 if array.dtype.kind in "iu" else np.float32
        self.constants.append(numpy_helper.from_array(array.astype(kind), name))
        return name


class Value:
    """The output of a node."""

    def __init__(self, nodes: Nodes, name: str) -> None:
        self.nodes = nodes
        self.name = name

    def __add__(self, other: Operand) -> "Value":
        return self.nodes("Add", self, other)

    def __sub__(self, other: Operand) -> "Value":
        return self.nodes("Sub", self, other)

    def __mul__(self, other: Operand) -> "Value":
        return self.nodes("Mul", self, other)

    def __truediv__(self, other: Operand) -> "Value":
        return self.nodes("Div", self, other)

    def __floordiv__(self, other: Operand) -> "Value":
        """Of whole numbers that are not negative: ONNX rounds towards zero."""
        return self.nodes("Div", self, other)

    def __mod__(self, other: Operand) -> "Value":
        return self.nodes("Mod", self, other)
