"""The text of a kernel's body while it is written: lines, names, constants, headers, namespaces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence

from jax_elementwise._codegen.types import DType, bits_literal
from jax_elementwise._codegen.values import Value

__all__ = ["Writer"]


class Writer:
    """The lines written so far, and a counter that names values in the order they appear."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.headers: set[str] = set()
        self.namespaces: list[str] = []
        self._indent = 1
        self._count = 0
        self._spaces: dict[Hashable, str] = {}
        self._tables: dict[str, str] = {}

    def line(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("  " * self._indent + text)

    @contextlib.contextmanager
    def indented(self) -> Iterator[None]:
        """Indents the lines that are added meanwhile."""
        self._indent += 1
        yield
        self._indent -= 1

    def name(self) -> str:
        """A name that no value has yet."""
        self._count += 1
        return f"v{self._count - 1}"

    def use(self, header: str) -> None:
        """Includes a header."""
        self.headers.add(header)

    def declare(self, dtype: DType) -> None:
        """Includes what declares a type that no operand may have."""
        if dtype.kind == "complex":
            self.use("math/complex.h")

    def namespace(self, key: Hashable, text: Callable[[str], str]) -> str:
        """The name of a namespace before the kernel's own, whose text is made from that name."""
        if key not in self._spaces:
            self._spaces[key] = f"source{len(self._spaces)}"
            self.namespaces.append(text(self._spaces[key]))
        return self._spaces[key]

    def bind(self, value: Value) -> Value:
        """Gives a value a name, so that it is computed once."""
        if value.known is not None or value.code.isidentifier():
            return value
        self.declare(value.dtype)
        name = self.name()
        self.line(f"const {value.dtype.compute} {name} = {value.code};")
        return Value(name, value.dtype, value.exact)

    def variable(self, dtype: DType) -> Value:
        """A variable without a value, to be assigned to."""
        self.declare(dtype)
        name = self.name()
        self.line(f"{dtype.compute} {name};")
        return Value(name, dtype)

    def entry(self, values: Sequence[Value], index: Value) -> str:
        """The entry of an array of known values, in memory, at an index."""
        dtype = values[0].dtype
        self.declare(dtype)
        element, codes, read = dtype.compute, [value.code for value in values], "{}"
        if any("bit_cast" in code for code in codes):  # no constant expression: bits are stored
            element = "uint32" if element == "float" else "uint64"
            codes = [bits_literal(value.known, dtype) for value in values]
            read = f"bit_cast<{dtype.compute}>({{}})"
        declared = f"{element} @[] = {{{', '.join(codes)}}};"
        if declared not in self._tables:
            name = f"table{len(self._tables)}"
            self._tables[declared] = name
            # At the beginning, since it may be needed again outside of the branch that is written.
            # Not constexpr, which NVRTC 13 turns into a chain of selections.
            self.lines.insert(0, "  static const " + declared.replace("@", name))
        return read.format(f"{self._tables[declared]}[{index.code}]")
