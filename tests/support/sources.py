"""Functors in C++ as ``cuda_functor`` reads them."""

from __future__ import annotations

from jax_elementwise._cuda_functor.parsing import parse
from jax_elementwise._cuda_functor.source import Source


def parsed(text: str, **options) -> Source:
    """A functor's text, with arguments of ``cuda_functor``."""
    defaults = {
        "name": None,
        "inputs": None,
        "scalars": (),
        "outputs": None,
        "index": None,
        "preamble": "",
        "headers": {},
    }
    return parse(text, **{**defaults, **options})
