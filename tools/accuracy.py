#!/usr/bin/env python3
"""Measures how exact kernels are: every row of the operator table, with every float it takes.

    python3 tools/accuracy.py                            # on a GPU: writes docs/accuracy.json
    python3 tools/accuracy.py --xla --output FILE        # of XLA's operations, to try this program

Arguments are random ones from a row's domain and ones of every exponent: for the floats of 8 and 16
bits each value there is, if there is one operand. Real results are compared in extended precision
(``tests/support/reference.py``), complex ones with mpmath.

The error of a real result is |computed - exact| in units in the last place of the exact result: a
correctly rounded one is off by up to 0.5. What overflows counts as the number after the largest.
That of a complex result is |computed - exact| / |exact| in machine epsilons.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import pathlib
import platform
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import mpmath
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gpu import device  # noqa: E402
from support import reference  # noqa: E402

import jax_elementwise as je  # noqa: E402
from jax_elementwise._codegen.rules.operators import OPERATORS, Operator  # noqa: E402
from jax_elementwise._codegen.types import DTYPES  # noqa: E402

OUTPUT = ROOT / "docs" / "accuracy.json"
FLOATS = [name for name, dtype in DTYPES.items() if dtype.kind == "float"]
COMPLEX = [name for name, dtype in DTYPES.items() if dtype.kind == "complex"]

RANDOM, EVERY = 20_000, 65_536  # arguments from the domain, and of every exponent
BY_MPMATH = 500  # arguments of what mpmath computes
REFINED = (
    40  # the largest errors, to be computed once more where a reference is no better than float64
)

TOTAL_ORDER = frozenset({"eq_to", "lt_to", "le_to"})

Operands = list[np.ndarray]


# ---- Exact results -------------------------------------------------------------------------------

# Functions whose reference is rounded to float64.
EXACT: dict[str, Callable] = {
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "erf_inv": mpmath.erfinv,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "digamma": mpmath.digamma,
    "zeta": reference._zeta,
    "polygamma": reference._polygamma,
    "bessel_i0e": lambda x: reference._scaled_bessel(0, x),
    "bessel_i1e": lambda x: reference._scaled_bessel(1, x),
}


def _larger(x: Any, y: Any) -> Any:
    return x if (x.real, x.imag) > (y.real, y.imag) else y


def _smaller(x: Any, y: Any) -> Any:
    return x if (x.real, x.imag) < (y.real, y.imag) else y


# Of complex numbers, by mpmath.
OF_COMPLEX: dict[str, Callable] = {
    "add": lambda x, y: x + y,
    "add_any": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "abs": abs,
    "sign": lambda x: x / abs(x),
    "max": _larger,
    "min": _smaller,
    "square": lambda x: x * x,
    "one_minus_square": lambda x: (1 + x) * (1 - x),
    "copy": lambda x: x,
    "pow": lambda x, y: mpmath.exp(y * mpmath.log(x)),
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.exp(x * mpmath.log(2)),
    "expm1": lambda x: mpmath.exp(x) - 1,
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "log1p": lambda x: mpmath.log(1 + x),
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
    "atan2": lambda y, x: -1j * mpmath.log((x + 1j * y) / mpmath.sqrt(x * x + y * y)),
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "asinh": mpmath.asinh,
    "acosh": mpmath.acosh,
    "atanh": mpmath.atanh,
    "conj": mpmath.conj,
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "clamp": lambda low, x, high: _smaller(_larger(low, x), high),
}


# ---- Arguments -----------------------------------------------------------------------------------


def arguments(rng: np.random.Generator, row: Operator, dtype: str, scale: float) -> Operands:
    """Of a row; of ``scale`` times as many values as usual."""
    count, every = int(RANDOM * scale), int(EVERY * scale)
    if DTYPES[dtype].kind == "complex":
        return [_complex(rng, row, dtype, int(BY_MPMATH * scale)) for _ in range(row.arity)]
    limit = BY_MPMATH // 2 if row.name in reference.SLOW else None
    columns = []
    for domain in row.operand_domains():
        values = reference.of_every_exponent(rng, dtype, every)
        if row.arity > 1 or limit:  # not every combination of them
            values = rng.permutation(values)[:limit]
        if row.name in reference.POSITIVE_ONLY:
            values = np.abs(values)
        if row.name in TOTAL_ORDER:  # the reference widens, and so changes NaNs
            with np.errstate(invalid="ignore"):  # signalling NaNs
                values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
        random = reference.random_values(rng, dtype, limit or count, domain)
        columns.append(np.concatenate([random, values]))
    return columns


def _complex(rng: np.random.Generator, row: Operator, dtype: str, count: int) -> np.ndarray:
    """Both parts are as large as the domain says, and of either sign."""
    part = "float32" if dtype == "complex64" else "float64"
    largest = max(map(abs, row.domain))
    parts = [reference.random_values(rng, part, count, (-largest, largest)) for _ in range(2)]
    return np.stack(parts, axis=1).view(dtype).ravel()


# ---- Errors --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Errors:
    """Of results: how large, and where NaN, a truth value or a neighbour is wrong."""

    sizes: np.ndarray
    wrong: np.ndarray


def _extended(x: np.ndarray) -> np.ndarray:
    return (x if x.dtype == np.longdouble else x.astype(np.float64)).astype(np.longdouble)


def _units(exact: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """One in the last place of numbers."""
    info = ml_dtypes.finfo(dtype)
    size = np.where(np.isnan(exact), 0, np.minimum(np.abs(exact), np.longdouble(float(info.max))))
    exponent = np.where(size == 0, info.minexp, np.maximum(np.frexp(size)[1] - 1, info.minexp))
    return np.ldexp(np.longdouble(1), exponent - info.nmant)


def real_errors(row: Operator, operands: Operands, actual: np.ndarray) -> Errors:
    """In units in the last place."""
    if row.name == "nextafter":
        wrong = actual != np.where(operands[0] == operands[1], operands[1], np.nextafter(*operands))
        return Errors(
            np.zeros(wrong.size), wrong & ~(np.isnan(operands[0]) | np.isnan(operands[1]))
        )
    exact = reference.NUMPY[row.name](*map(_extended, operands))
    if actual.dtype == bool:
        return Errors(np.zeros(actual.size), actual != exact)
    units, computed = _units(exact, actual.dtype), _extended(actual)
    largest = np.longdouble(float(ml_dtypes.finfo(actual.dtype).max))
    after = largest + _units(np.array([largest]), actual.dtype)[0]
    overflows = np.isinf(computed)
    if actual.dtype.name == "float8_e4m3fn":  # has no infinity
        overflows |= np.isnan(computed) & (np.abs(exact) >= largest)
        computed = np.where(np.isnan(computed), np.copysign(np.inf, exact), computed) * 1
    computed = np.where(overflows, np.copysign(after, computed), computed)
    nan = np.isnan(exact)
    wrong = nan != np.isnan(_extended(actual)) & ~overflows
    exact = np.clip(exact, -after, after)
    sizes = np.where(nan | wrong, 0, np.abs(computed - exact) / units)
    if actual.dtype == np.float64 and row.name in EXACT:
        sizes = _refined(row.name, operands, actual, units, sizes)
    return Errors(sizes.astype(np.float64), wrong)


def _refined(
    name: str, operands: Operands, actual: np.ndarray, units: Any, sizes: Any
) -> np.ndarray:
    """The largest errors computed once more, by mpmath; the others are left out."""
    result = np.zeros(sizes.size)
    ordinary = np.all([np.isfinite(x) & (x != 0) for x in operands], axis=0) & np.isfinite(actual)
    for i in (i for i in np.argsort(sizes)[-REFINED:] if ordinary[i]):
        with mpmath.workdps(50):
            exact = EXACT[name](*(mpmath.mpf(float(x[i])) for x in operands))
            error = abs(mpmath.mpf(float(actual[i])) - exact)
            result[i] = float(error / mpmath.mpf(float(units[i])))
    return result


def complex_errors(row: Operator, operands: Operands, actual: np.ndarray) -> Errors:
    """In machine epsilons of the whole result."""
    sizes, wrong = np.zeros(actual.size), np.zeros(actual.size, bool)
    if actual.dtype != bool:
        info = np.finfo(actual.real.dtype)
    with mpmath.workdps(60):
        for i, values in enumerate(zip(*operands, strict=True)):
            exact = OF_COMPLEX[row.name](*(mpmath.mpc(complex(value)) for value in values))
            if actual.dtype == bool:
                wrong[i] = bool(exact) != bool(actual[i])
                continue
            size, computed = abs(exact), complex(actual[i])
            if not float(info.tiny / info.eps) < size < float(info.max):
                wrong[i] = size == 0 and computed != 0
            elif np.isfinite(actual[i]):
                error = abs(mpmath.mpc(computed) - exact)
                sizes[i] = float(error / size / mpmath.mpf(float(info.eps)))
            else:
                wrong[i] = True
    return Errors(sizes, wrong)


# ---- Measuring -----------------------------------------------------------------------------------


def rows_of(dtype: str) -> list[Operator]:
    """The rows to measure: what takes a dtype, and what the installed JAX has."""
    rows = [row for row in OPERATORS.values() if row.form(DTYPES[dtype]) is not None]
    rows = [row for row in rows if reference.lax_function(row) is not None]
    if dtype in COMPLEX:
        return rows
    return [
        row for row in rows if row.name in reference.NUMPY
    ]  # not those that make complex numbers


def results_of(operands: dict[str, Operands], lowering: str) -> dict[str, np.ndarray]:
    """The results of rows, by name, from one program."""
    functions = {
        name: je.elementwise(reference.lax_function(OPERATORS[name]), lowering=lowering)
        for name in operands
    }

    def all_of(operands: dict[str, Any]) -> dict[str, Any]:
        return {name: functions[name](*xs) for name, xs in operands.items()}

    on_device = jax.device_put(operands)
    compiled = jax.jit(all_of).lower(on_device).compile()
    calls = device.custom_calls(compiled)
    # Rows that only move a value need no kernel.
    if lowering == "kernel" and calls < len(operands) - 2:
        raise SystemExit(f"{calls} kernels for {len(operands)} rows")
    return {name: np.asarray(result) for name, result in compiled(on_device).items()}


def entry(row: Operator, dtype: str, operands: Operands, actual: np.ndarray) -> dict[str, Any]:
    """What is to be said of a row and a dtype."""
    of_complex = dtype in COMPLEX
    with np.errstate(all="ignore"):
        errors = (complex_errors if of_complex else real_errors)(row, operands, actual)
    worst = int(np.argmax(errors.sizes))
    measured = {"eps" if of_complex else "ulp": float(f"{errors.sizes[worst]:.2g}")}
    result: dict[str, Any] = {**measured, "values": int(actual.size)}
    if errors.sizes[worst] > 0:
        result["at"] = [str(x[worst].item()) for x in operands]
    if errors.wrong.any():
        first = int(np.argmax(errors.wrong))
        result["wrong"] = int(errors.wrong.sum())
        result["wrong_at"] = [str(x[first].item()) for x in operands]
    return result


def measure(lowering: str, scale: float, dtypes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By row and dtype."""
    rng = np.random.default_rng(20250711)
    found: dict[str, dict[str, Any]] = {name: {} for name in OPERATORS}
    if lowering == "kernel":
        pairs = [(row, dtype) for dtype in dtypes for row in rows_of(dtype)]
        device.precompile(
            (reference.lax_function(row), [dtype] * row.arity) for row, dtype in pairs
        )
    for dtype in dtypes:
        begin = time.monotonic()
        operands = {row.name: arguments(rng, row, dtype, scale) for row in rows_of(dtype)}
        results = results_of(operands, lowering)
        for name, xs in operands.items():
            found[name][dtype] = entry(OPERATORS[name], dtype, xs, results[name])
        print(f"{dtype}: {len(operands)} rows, {time.monotonic() - begin:.1f} s", flush=True)
    return {name: by_dtype for name, by_dtype in found.items() if by_dtype}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    parser.add_argument("--xla", action="store_true", help="XLA's operations, also without a GPU")
    parser.add_argument("--scale", type=float, default=1.0, help="that many times the values")
    parser.add_argument("--dtypes", nargs="+", choices=[*FLOATS, *COMPLEX])
    options = parser.parse_args(argv)
    if options.xla and options.output == OUTPUT:
        parser.error("--xla needs another --output: the record is of kernels")
    if not options.xla and jax.default_backend() != "gpu":
        parser.error(f"needs a GPU, or --xla; JAX has {jax.devices()}")
    if np.finfo(np.longdouble).nmant < 63:
        parser.error("needs long doubles of 80 bits, which this machine has not")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and writes; returns the exit status."""
    options = parse(argv)
    jax.config.update("jax_enable_x64", True)
    lowering = "xla" if options.xla else "kernel"
    # XLA has no Bessel functions of float8 on the CPU.
    known = [d for d in (*FLOATS, *COMPLEX) if not (options.xla and d.startswith("float8"))]
    rows = measure(lowering, options.scale, options.dtypes or known)
    record = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": jax.devices()[0].device_kind,
        "lowering": lowering,
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    lines = [f'  "{key}": {json.dumps(value)},\n' for key, value in record.items()]
    entries = [
        f'    "{name}": {{\n'
        + ",\n".join(f'      "{dtype}": {json.dumps(e)}' for dtype, e in by_dtype.items())
        + "\n    }"
        for name, by_dtype in rows.items()
    ]
    text = "{\n" + "".join(lines) + '  "rows": {\n' + ",\n".join(entries) + "\n  }\n}\n"
    options.output.write_text(text, encoding="utf-8")
    wrong = [
        f"{name} {dtype}: {e['wrong']} wrong, first at {e['wrong_at']}"
        for name, by_dtype in rows.items()
        for dtype, e in by_dtype.items()
        if "wrong" in e
    ]
    print("\n".join(wrong) or "NaN, truth values and neighbours are all as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
