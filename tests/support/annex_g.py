"""Functions of complex zeros, infinities and NaN: what C99, Annex G, leaves open, and where XLA
does not follow it."""

from __future__ import annotations

import numpy as np

FUNCTIONS = (
    *("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
)

# Signs that Annex G leaves open, by function: the component, and where.
OPEN = {
    "sin": ("imag", lambda z: ~np.isfinite(z.real) & np.isinf(z.imag)),
    "cos": ("imag", lambda z: ~np.isfinite(z.real) & (z.imag == 0)),
    "sinh": ("real", lambda z: np.isinf(z.real) & ~np.isfinite(z.imag)),
    "cosh": ("imag", lambda z: (z.real == 0) & ~np.isfinite(z.imag)),
    "acos": ("imag", lambda z: np.isinf(z.real) & np.isnan(z.imag)),
}


def without_open_signs(name: str, z: np.ndarray, result: np.ndarray) -> np.ndarray:
    """The results of a function, positive where their sign is left open."""
    part, where = OPEN.get(name, ("real", lambda z: np.zeros(z.shape, bool)))
    result = result.copy()
    component = getattr(result, part)
    component[where(z)] = np.abs(component[where(z)])
    return result


# Where jax.lax differs on the CPU (JAX 0.10.2), signs of zeros aside: functions, components of the
# argument (of either sign unless one is given), and components of both results, without signs.
UNLIKE_ANNEX_G = (
    ("exp", "+inf", "inf nan", "inf nan", "nan nan"),
    ("exp", "-inf", "inf nan", "0 0", "nan nan"),
    ("log", "inf", "nan", "inf nan", "nan nan"),
    ("log", "nan", "inf", "inf nan", "nan nan"),
    ("sqrt", "+inf", "nan", "inf nan", "nan nan"),
    ("sqrt", "-inf", "nan", "nan inf", "nan nan"),
    ("sqrt", "nan", "inf", "inf inf", "nan nan"),
    ("sin cos tan", "inf nan", "0", "nan 0", "nan nan"),
    ("sin", "inf nan", "inf", "nan inf", "nan nan"),
    ("cos", "inf nan", "inf", "inf nan", "nan nan"),
    ("sinh tanh", "0", "inf nan", "0 nan", "nan nan"),
    ("cosh", "0", "inf nan", "nan 0", "nan nan"),
    ("sinh cosh", "inf", "inf nan", "inf nan", "nan nan"),
    ("asin", "0", "nan", "0 nan", "nan nan"),
    ("asinh", "nan", "0", "nan 0", "nan nan"),
    ("acos", "0", "nan", "π/2 nan", "nan nan"),
    ("acosh", "0", "nan", "nan π/2", "nan nan"),
    ("atan", "0 1", "nan", "nan nan", "π/2 nan"),
    ("atan", "nan", "1 nan", "nan nan", "π/2 nan"),
    ("atan", "nan", "0", "nan 0", "π/2 nan"),
    ("atan", "nan", "inf", "nan 0", "π/2 0"),
    ("atanh", "0", "nan", "0 nan", "nan π/2"),
    ("atanh", "1", "nan", "nan nan", "nan π/2"),
    ("atanh", "nan", "0 1 nan", "nan nan", "nan π/2"),
    ("atanh", "inf", "nan", "0 nan", "0 π/2"),
)
# Where it takes a component -0 for +0, which lies on the other side of a branch cut.
ACROSS_CUTS = (
    ("sqrt", "-1 -inf", "-0"),
    ("asin acos atanh", "inf", "-0"),
    ("atan asinh", "-0", "inf"),
    ("acosh", "0 -1 -inf", "-0"),
)


def _named(x) -> str:
    """A component without its sign."""
    if np.isclose(np.abs(x), np.pi / 2):
        return "π/2"
    return "x" if np.isfinite(x) and x not in (0, 1, -1) else f"{np.abs(x):g}"


def _is_one_of(x, names: str) -> bool:
    sign = "-" if np.signbit(x) else "+"
    return any(name in (_named(x), sign + _named(x)) for name in names.split())


def difference(x, y) -> tuple[str, ...] | None:
    """How results differ: in what they are, or ("other side",)."""
    pairs = [(x.real, y.real), (x.imag, y.imag)]
    names = [" ".join(map(_named, parts)) for parts in zip(*pairs, strict=True)]
    if names[0] != names[1]:
        return tuple(names)
    number = [(a, b) for a, b in pairs if a != 0 and not np.isnan(a)]
    return ("other side",) if any(np.signbit(a) != np.signbit(b) for a, b in number) else None


def listed(name, z):
    """What ``difference`` should say of a function at an argument."""
    for functions, re, im, *results in UNLIKE_ANNEX_G:
        if name in functions.split() and _is_one_of(z.real, re) and _is_one_of(z.imag, im):
            return tuple(results)
    for functions, re, im in ACROSS_CUTS:
        if name in functions.split() and _is_one_of(z.real, re) and _is_one_of(z.imag, im):
            return ("other side",)
    return None


def table() -> str:
    """The list as Markdown."""

    def number(text):
        re, im = text.replace("nan", "NaN").split()
        return f"({re}, {im})"

    def choice(text):
        names = [n if n[0] in "+-" or n == "nan" else f"±{n}" for n in text.split()]
        return ", ".join(names).replace("nan", "NaN")

    rows = [
        (functions, choice(re), choice(im), *map(number, results))
        for functions, re, im, *results in UNLIKE_ANNEX_G
    ]
    rows += [
        (functions, choice(re), choice(im), "this side of the cut", "the other side")
        for functions, re, im in ACROSS_CUTS
    ]
    head = ("Functions", "Real part", "Imaginary part", "Here, as in Annex G", "XLA on the CPU")
    lines = [head, ("---",) * 5, *((f.replace(" ", ", "), *rest) for f, *rest in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
