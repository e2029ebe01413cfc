"""Which parameters of a test are tested by default; the others are marked ``exhaustive``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

# A dtype of every width and kind. Others differ from one of these by a name, or in conversions,
# which have tests of their own.
DTYPES = ("bool", "int32", "bfloat16", "float32", "float64", "complex64")


def sampled(values: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Parameters, all but those kept marked ``exhaustive``: values, or what they are printed as."""
    values = list(values)
    found = [value for value in values if value in kept or str(value) in kept]
    assert len(found) >= len(kept), (found, kept)
    return [value if value in found else _exhaustive(value) for value in values]


def _exhaustive(value: Any) -> Any:
    """One parameter, or a tuple of as many as the test has names for."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)
