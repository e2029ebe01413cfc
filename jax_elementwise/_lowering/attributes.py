"""The attributes of the custom call, which a program holds of a kernel, and their digest.

``csrc/ffi/attributes.cc`` reads them, works the digest out again and refuses a program where it is
another one: whatever was changed, nothing of the program runs. Their names and meanings are in
exported programs, so a change of either is another format.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence

from jax_elementwise import _extension
from jax_elementwise._codegen.kernel import Kernel

__all__ = ["Attributes", "digest", "of"]

Attributes = Mapping[str, "int | str | Sequence[int]"]


@functools.lru_cache(maxsize=4096)
def of(kernel: Kernel) -> Attributes:
    """The attributes of a custom call of a kernel, the digest of all others included."""
    # The complement stands for an operand that is not given: the index of the element.
    spans = tuple(~s if i == kernel.index else s for i, s in enumerate(kernel.space.spans))
    # In the order in which the digest takes them.
    described: dict[str, int | str | Sequence[int]] = {
        "format": _extension.FORMAT,
        "source": kernel.source,
        "name": kernel.name,
        "options": " ".join(kernel.options),
        "groups": kernel.space.groups,
        "spans": spans,
        "pack": kernel.pack,
        "index_bits": kernel.space.index_bits,
        "operand_dtypes": tuple(_extension.DTYPE_CODES[name] for name in kernel.operand_dtypes),
        "result_dtypes": tuple(_extension.DTYPE_CODES[name] for name in kernel.result_dtypes),
    }
    return described | {"digest": digest(described)}


def digest(attributes: Attributes) -> str:
    r"""Names a kernel and how it is called in every process: SHA-256 of all its attributes.

    The hash is of one line per attribute, ``name:value``. A value is a number in decimal, numbers
    with commas between them, or the length of a text in bytes, a colon and the text.

    Args:
      attributes: in the order of ``of``; a digest among them is left out.

    >>> _canonical({"format": 1, "name": "k", "groups": (1, 2)})
    b'format:1\nname:1:k\ngroups:1,2\n'
    >>> len(digest({"format": 1}))
    64
    """
    return hashlib.sha256(_canonical(attributes)).hexdigest()


def _canonical(attributes: Attributes) -> bytes:
    return b"".join(
        b"%s:%s\n" % (name.encode(), _value(value))
        for name, value in attributes.items()
        if name != "digest"
    )


def _value(value: int | str | Sequence[int]) -> bytes:
    if isinstance(value, str):
        text = value.encode()
        return b"%d:%s" % (len(text), text)
    numbers = (value,) if isinstance(value, int) else value
    return ",".join(map(str, numbers)).encode()
