#!/usr/bin/env python3
"""Writes docs/operators.md, of the tables that kernels are generated from and docs/accuracy.json.

    python3 tools/operator_table.py           # writes it
    python3 tools/operator_table.py --check   # exits 1 unless it is what would be written

The page says nothing that depends on the installed JAX. What is not in docs/accuracy.json is shown
as not measured.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jax_elementwise._codegen import fusion
from jax_elementwise._codegen.registry import names_of
from jax_elementwise._codegen.rules import operators
from jax_elementwise._codegen.rules.operators import MEANINGS, OPERATORS, Operator
from jax_elementwise._codegen.types import DTYPES, DType
from jax_elementwise._functor.constants import MAX_ELEMENTS
from jax_elementwise._functor.jaxprs import WRAPPERS

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operators.md"
ACCURACY = ROOT / "docs" / "accuracy.json"

# Rows whose results are true or false, of which there is no error.
TESTS = {"is_finite", "eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to"}

# Rows with no function of their own in jax.lax.
PRIVATE = {"add_any", "copy", "eq_to", "le_to", "lt_to"}

# What users write, besides the function in jax.lax. tests/test_docs.py traces each of them.
WRITTEN: dict[str, tuple[str, ...]] = {
    "add": ("x + y",),
    "sub": ("x - y",),
    "mul": ("x * y",),
    "div": ("x / y",),
    "rem": ("jnp.fmod(x, y)",),
    "neg": ("-x",),
    "abs": ("abs(x)",),
    "sign": ("jnp.sign(x)",),
    "max": ("jnp.maximum(x, y)",),
    "min": ("jnp.minimum(x, y)",),
    "square": ("jnp.square(x)",),
    "copy": ("jnp.copy(x)",),
    "pow": ("x ** y",),
    "sqrt": ("jnp.sqrt(x)",),
    "cbrt": ("jnp.cbrt(x)",),
    "exp": ("jnp.exp(x)",),
    "exp2": ("jnp.exp2(x)",),
    "expm1": ("jnp.expm1(x)",),
    "log": ("jnp.log(x)",),
    "log2": ("jnp.log2(x)",),
    "log1p": ("jnp.log1p(x)",),
    "logistic": ("jax.nn.sigmoid(x)",),
    "sin": ("jnp.sin(x)",),
    "cos": ("jnp.cos(x)",),
    "tan": ("jnp.tan(x)",),
    "asin": ("jnp.arcsin(x)",),
    "acos": ("jnp.arccos(x)",),
    "atan": ("jnp.arctan(x)",),
    "atan2": ("jnp.arctan2(x, y)",),
    "sinh": ("jnp.sinh(x)",),
    "cosh": ("jnp.cosh(x)",),
    "tanh": ("jnp.tanh(x)",),
    "asinh": ("jnp.arcsinh(x)",),
    "acosh": ("jnp.arccosh(x)",),
    "atanh": ("jnp.arctanh(x)",),
    "erf": ("jax.scipy.special.erf(x)",),
    "erfc": ("jax.scipy.special.erfc(x)",),
    "erf_inv": ("jax.scipy.special.erfinv(x)",),
    "lgamma": ("jax.scipy.special.gammaln(x)",),
    "digamma": ("jax.scipy.special.digamma(x)",),
    "bessel_i0e": ("jax.scipy.special.i0e(x)",),
    "bessel_i1e": ("jax.scipy.special.i1e(x)",),
    "zeta": ("jax.scipy.special.zeta(x, y)",),
    "polygamma": ("jax.scipy.special.polygamma(2, x)",),
    "conj": ("jnp.conj(x)",),
    "real": ("jnp.real(x)",),
    "imag": ("jnp.imag(x)",),
    "floor": ("jnp.floor(x)",),
    "ceil": ("jnp.ceil(x)",),
    "is_finite": ("jnp.isfinite(x)",),
    "nextafter": ("jnp.nextafter(x, y)",),
    "eq": ("x == y",),
    "ne": ("x != y",),
    "lt": ("x < y",),
    "le": ("x <= y",),
    "gt": ("x > y",),
    "ge": ("x >= y",),
    "and": ("x & y",),
    "or": ("x | y",),
    "xor": ("x ^ y",),
    "not": ("~x",),
    "shift_left": ("x << y",),
    "shift_right_logical": ("x >> y",),
    "shift_right_arithmetic": ("x >> y",),
    "population_count": ("jnp.bitwise_count(x)",),
}

# Of what has parameters: what it is in JAX, and what there is to say of it.
RULES: dict[str, tuple[str, str]] = {
    "convert_element_type": (
        "`x.astype(dtype)`",
        "to integers: towards zero, saturating, NaN to 0; between integers: wraps; to bool: all "
        "but 0 is true; to narrow floats: rounded to nearest even",
    ),
    "bitcast_convert_type": (
        "`lax.bitcast_convert_type`",
        "between dtypes of one size; a narrow float is rounded first",
    ),
    "integer_pow": ("`x ** 3`", "by squaring; of a negative exponent the reciprocal of that"),
    "round": (
        "`jnp.round(x)`, `lax.round`",
        "halfway cases to even (`jnp.round`) or away from zero (the default of `lax.round`)",
    ),
    "reduce_precision": (
        "`lax.reduce_precision`",
        "to nearest even; what is below the format's normal numbers becomes zero, but for a "
        "dtype's own format, which rounds to the dtype",
    ),
    "select_n": ("`jnp.where`", "what is not chosen is computed too, unlike in `lax.cond`"),
    "polynomial": ("`lax.polynomial`", "by Horner's scheme"),
    "empty2": ("", "in gradients of `lax.cond`"),
    "name": ("`jax.ad_checkpoint.checkpoint_name`", "its argument"),
    "stop_gradient": ("`lax.stop_gradient`", "its argument"),
}

# Groups of rules for small arrays inside of a function.
GROUPS: dict[str, str] = {
    "reshape squeeze broadcast_in_dim transpose rev slice pad concatenate stack unstack split "
    "tile": "cost nothing: elements change their places when the code is written",
    "iota constant_array": (
        "numbers that are known when the code is written: `jnp.arange`, captured tables"
    ),
    "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor": (
        "from the first element to the last"
    ),
    "cumsum cumprod cummax cummin": "the same, every sum kept",
    "argmax argmin": "the first of equal elements; NaN beats everything",
    "dot_general": "`x @ y`: sums of products, from the first to the last",
    "dynamic_slice dynamic_update_slice": "starts are moved to where the window fits",
    "gather": "`table[i]`, `jnp.take`: out of bounds clamped or filled, as the mode says",
    "scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max": (
        "`x.at[i].set(y)` and its like, `.apply(f)` too: out of bounds dropped or clamped"
    ),
}

# What users do not know by these names.
UNLISTED = {*WRAPPERS, "optimization_barrier", fusion.sine_and_cosine_p.name, "cuda_functor"}

# What holds other functions.
CONTROL: dict[str, tuple[str, str]] = {
    "cond": (
        "`lax.cond`, `lax.switch`",
        "a branch: what an element does not choose, it does not compute; an index out of range is "
        "moved into it",
    ),
    "elementwise": ("a function of this package", "written out"),
    "scan": (
        "`lax.scan`, `lax.fori_loop`",
        f"a loop; written out if it scans over something (up to {MAX_ELEMENTS} steps) or is short; "
        "what goes around is rounded to its dtype",
    ),
    "while": (
        "`lax.while_loop`, `lax.fori_loop`",
        "a loop that each element leaves on its own; what goes around is rounded to its dtype",
    ),
}


# ---- Cells ---------------------------------------------------------------------------------------


def sections() -> Iterator[tuple[str, list[Operator]]]:
    """The groups of rows, by the comments that head them in the table's source."""
    source = pathlib.Path(operators.__file__).read_text(encoding="utf-8")
    table = source[source.index("_ROWS = (") : source.index("\nOPERATORS")]
    pattern = r"^    # (?P<title>.*)\.$|^    Operator\(\s*\"(?P<row>\w+)\""
    found: list[tuple[str, list[Operator]]] = []
    for match in re.finditer(pattern, table, re.MULTILINE):
        if match["title"]:
            found.append((match["title"], []))
        else:
            found[-1][1].append(OPERATORS[match["row"]])
    assert sum(len(rows) for _, rows in found) == len(OPERATORS)
    return iter(found)


def dtypes_of(names: Iterable[str]) -> str:
    """Names of dtypes, those of a whole class by its name."""
    left = set(names)
    classes: dict[str, set[str]] = {"all": set(DTYPES)}
    for kind, words in (("float", "floats"), ("int", "integers"), ("complex", "complex")):
        classes[words] = {d.name for d in DTYPES.values() if d.kind == kind}
    classes["signed integers"] = {name for name in DTYPES if name.startswith("int")}
    parts = []
    for words, members in classes.items():
        if members and members <= left:
            parts.append(words)
            left -= members
    return ", ".join([*parts, *(name for name in DTYPES if name in left)])


def takes(row: Operator) -> list[str]:
    """The dtypes of a row's operands."""
    return [name for name, dtype in DTYPES.items() if row.form(dtype) is not None]


def in_jax(row: Operator) -> str:
    """What a row is called by users."""
    own = () if row.name in PRIVATE else (f"lax.{row.function or row.name}",)
    return ", ".join(f"`{text}`".replace("|", "\\|") for text in (*WRITTEN.get(row.name, ()), *own))


Measured = Mapping[str, Mapping[str, Any]]


def _largest(row: Operator, dtypes: Sequence[DType], measured: Measured) -> str:
    """The largest error measured with any of some dtypes, unless one of them was not measured."""
    entries = [measured.get(row.name, {}).get(dtype.name) for dtype in dtypes]
    known = [entry for entry in entries if entry is not None]
    if not known or len(known) < len(entries):
        return "-"
    return f"{max(entry.get('ulp', entry.get('eps', 0)) for entry in known):.2g}"


def errors(row: Operator, measured: Measured) -> list[str]:
    """Measured and allowed: of float32, float64, narrow floats and complex numbers."""
    if row.name in TESTS:
        return [""] * 4
    narrow = [dtype for dtype in DTYPES.values() if dtype.is_narrow]
    of_complex = [dtype for dtype in DTYPES.values() if dtype.kind == "complex"]
    columns = (
        ([DTYPES["float32"]], row.ulp[0]),
        ([DTYPES["float64"]], row.ulp[1]),
        (narrow, 1),
        (of_complex, row.complex_eps),
    )
    return [
        f"{_largest(row, dtypes, measured)} / {allowed}" if row.form(dtypes[0]) else ""
        for dtypes, allowed in columns
    ]


# ---- The page ------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> Iterator[str]:
    """A table's lines; its last columns are numbers."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * (len(heads) - numbers) + "---:|" * numbers
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _operators(measured: Measured) -> Iterator[str]:
    heads = ["primitive", "in JAX", "dtypes", "meaning"]
    heads += ["float32", "float64", "narrow", "complex"]
    for title, rows in sections():
        yield f"## {title}\n"
        cells = [
            [
                f"`{row.name}`",
                in_jax(row),
                dtypes_of(takes(row)),
                MEANINGS.get(row.name, ""),
                *errors(row, measured),
            ]
            for row in rows
        ]
        # No column is empty in all of a group's rows.
        used = [i for i in range(len(heads)) if i < 2 or any(row[i] for row in cells)]
        numbers = sum(i >= 4 for i in used)
        yield from table(
            [heads[i] for i in used], [[row[i] for i in used] for row in cells], numbers
        )


def _described(names: Iterable[str], described: Iterable[str], where: str) -> None:
    missing, unknown = set(names) - set(described), set(described) - set(names)
    if missing or unknown:
        raise SystemExit(
            f"{where} in tools/operator_table.py lacks {sorted(missing)} and should lose "
            f"{sorted(unknown)}"
        )


def _rules() -> Iterator[str]:
    parametric = [name for name in names_of("scalar") if name not in OPERATORS]
    _described(parametric, RULES, "RULES")
    yield "## With parameters\n"
    rows = [[f"`{name}`", *RULES[name]] for name in parametric]
    yield from table(["primitive", "in JAX", "meaning"], rows)
    _described(names_of("array"), [name for names in GROUPS for name in names.split()], "GROUPS")
    yield "## Small arrays inside of a function\n"
    rows = [
        [", ".join(f"`{name}`" for name in names.split()), text] for names, text in GROUPS.items()
    ]
    yield from table(["primitives", "meaning"], rows)
    _described(set(names_of("")) - UNLISTED, CONTROL, "CONTROL")
    yield "## Control flow\n"
    rows = [[f"`{name}`", *CONTROL[name]] for name in CONTROL]
    yield from table(["primitive", "in JAX", "meaning"], rows)
    yield "Nested `jit`, `jax.checkpoint`, `custom_jvp` and `custom_vjp` are written out.\n"


def _dtypes() -> Iterator[str]:
    yield "## Dtypes\n"
    rows = [
        [f"`{dtype.name}`", str(dtype.itemsize), "`float32`" if dtype.is_narrow else "itself"]
        for dtype in DTYPES.values()
    ]
    yield from table(["dtype", "bytes", "computed in"], rows)


INTRODUCTION = """\
# Operators

<!-- Written by tools/operator_table.py. Do not edit. -->

What kernels are generated for. Anything else is a `NotImplementedError` on every platform, unless
`lowering="xla"`. `lax` is `jax.lax`, `jnp` is `jax.numpy`; *narrow* floats are those of 8 and 16
bits. Integer arithmetic wraps around. [Numerics](numerics.md) says more about rounding and
conversions.

The last columns are errors, *measured / allowed*. Measured: |computed - exact| in units in the
last place (ulp) of the exact result, the largest that was found; rounding alone costs up to 0.5.
Allowed: what the tests let pass, in ulp between the result and the exact one after its rounding, so
that 0 means correctly rounded. Narrow results are counted in ulp of their own dtype, complex ones
as a whole: |computed - exact| / |exact| in machine epsilons.
"""


def _source(accuracy: Mapping[str, Any]) -> str:
    if not accuracy:
        return "Nothing has been measured yet (`-`).\n"
    versions = f"JAX {accuracy['jax']}, Python {accuracy['python']}"
    return (
        f"Measured on {accuracy['date']} on one {accuracy['device']}, {versions}, with random "
        "arguments from each function's\nusual range and with arguments of every exponent "
        "(`python3 tools/accuracy.py`); the arguments of the\nlargest errors are in "
        "[accuracy.json](accuracy.json).\n"
    )


def page(accuracy: Mapping[str, Any]) -> str:
    """The text of docs/operators.md."""
    measured = accuracy.get("rows", {})
    parts = [INTRODUCTION, _source(accuracy), *_operators(measured), *_rules(), *_dtypes()]
    return "\n".join(parts).rstrip("\n") + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args(argv)
    accuracy = json.loads(ACCURACY.read_text(encoding="utf-8")) if ACCURACY.exists() else {}
    if set(MEANINGS) - set(OPERATORS) or set(WRITTEN) - set(OPERATORS):
        raise SystemExit("MEANINGS or WRITTEN name what is not in the table of operators")
    text = page(accuracy)
    if options.check:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/operators.md is out of date: run python3 tools/operator_table.py")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
