"""Functions at random, from the table of operators and from what programs consist of."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator

import jax
import ml_dtypes
import numpy as np
from jax import lax

from fuzzing.functions import Block, Statement, Variable
from jax_elementwise._codegen import types
from jax_elementwise._codegen.rules import operators

DTYPES = ("f32", "f64", "bf16", "f16", "i32", "i8", "u32", "i64", "b", "c64")
FLOATS, INTEGERS = DTYPES[:4], DTYPES[4:8]
NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "i32": np.int32,
    "i8": np.int8,
    "u32": np.uint32,
    "i64": np.int64,
    "b": np.bool_,
    "c64": np.complex64,
}

# Where XLA on a CPU gives something else, as support/reference.py says, or nothing (mulhi), or
# where one step between two values is all there is.
LEFT_OUT = ("zeta", "polygamma", "nextafter", "digamma", "mulhi")
# Into the domains of the table, mostly.
_GUARDS = {
    operators.POSITIVE: "(abs({0}) + {1}(0.125))",
    operators.ABOVE_ONE: "(abs({0}) + {1}(1.25))",
    operators.UNIT: "({1}(0.875) * jnp.tanh({0}))",
    operators.WIDE: "{0}",
    operators.REAL: "{0}",
}
# Neither rounds nor depends on the last bits of what goes in.
_EXACT = {"neg", "abs", "max", "min", "conj", "real", "imag", "complex", "clamp", "copy"}


def parameters(rng: random.Random) -> tuple[Variable, ...]:
    """What all the functions of a kernel are given."""
    chosen = ["f32", "f32", rng.choice(FLOATS), rng.choice(DTYPES), "i32", rng.choice(DTYPES[4:])]
    return tuple(Variable(name, dtype) for name, dtype in zip("xyzwij", chosen, strict=True))


def function(rng: random.Random, given: tuple[Variable, ...]) -> Block:
    """A function of these parameters, with one to three results."""
    maker = Maker(rng)
    scope = list(given)
    body = [s for _ in range(rng.randint(3, 9)) for s in maker.statements(scope, depth=0)]
    results = list(dict.fromkeys(s.result for s in reversed(body)))[: rng.randint(1, 3)]
    if not any(r.dtype in (*FLOATS, "c64") for r in results):  # something to differentiate
        body += maker.converted(scope, "f32", rng.choice(results))
        results.append(scope[-1])
    return Block(given, tuple(body), tuple(results)).without_unused()


@functools.cache
def _result_of(name: str, dtype: str, arity: int) -> str | None:
    """The dtype of an operator's result; None where it does not take such operands."""
    row = operators.OPERATORS[name]
    fun = getattr(lax, row.function or name, None)
    if fun is None or row.form(_dtype_of(dtype)) is None:
        return None
    if dtype == "c64" and name in ("min", "max", "clamp"):  # JAX does not differentiate these
        return None
    with jax.enable_x64(True):
        try:
            result = jax.eval_shape(fun, *[jax.ShapeDtypeStruct((), NUMPY[dtype])] * arity)
        except TypeError:
            return None
    return next((d for d, of in NUMPY.items() if np.dtype(of) == result.dtype), None)


def _dtype_of(dtype: str) -> types.DType:
    return types.DTYPES[np.dtype(NUMPY[dtype]).name]


class Maker:
    """Makes statements whose names differ from each other."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self._count = 0
        self._kinds: tuple[tuple[int, Callable[..., Iterator[Statement]]], ...] = (
            (12, self._operator),
            (3, self._literal),
            (2, self._where),
            (2, self._convert),
            (2, self._power),
            (2, self._array),
            (2, self._table),
            (3, self._branch),
            (3, self._loop),
            (3, self._call),
            (3, self._rule),
            (1, self._derivative),
        )

    def fresh(self, dtype: str) -> Variable:
        """A new name."""
        self._count += 1
        return Variable(f"v{self._count}", dtype)

    def statements(self, scope: list[Variable], depth: int) -> Iterator[Statement]:
        """Statements for one more variable, which is added to the scope."""
        last = 7 if depth > 1 else len(self._kinds)  # blocks in blocks, but no deeper
        weights, kinds = zip(*self._kinds[:last], strict=True)
        kind = self.rng.choices(kinds, weights)[0]
        yield from kind(scope, depth)

    def block(
        self, scope: list[Variable], given: tuple[str, ...], result: str, depth: int
    ) -> Block:
        """A function of values of given dtypes."""
        names = tuple(self.fresh(dtype) for dtype in given)
        inner = [*scope, *names]
        body = [s for _ in range(self.rng.randint(1, 3)) for s in self.statements(inner, depth + 1)]
        fitting = [s.result for s in body if s.result.dtype == result]
        if not fitting:
            source = body[-1].result if self.rng.random() < 0.7 else self.rng.choice(names)
            body += self.converted(inner, result, source)
            fitting = [inner[-1]]
        return Block(names, tuple(body), (fitting[-1],)).without_unused()

    def one(self, scope: list[Variable], dtype: str) -> tuple[list[Statement], Variable]:
        """A variable of a dtype, by preference one that is there."""
        fitting = [v for v in scope if v.dtype == dtype]
        if fitting:
            # The newest half of the time, so that functions are deep, too.
            return [], fitting[-1] if self.rng.random() < 0.5 else self.rng.choice(fitting)
        made = self.converted(scope, dtype, self.rng.choice(scope))
        return made, scope[-1]

    def some(self, scope: list[Variable], dtypes: tuple[str, ...]):
        """Statements and variables of these dtypes."""
        made, variables = [], []
        for dtype in dtypes:
            statements, variable = self.one(scope, dtype)
            made += statements
            variables.append(variable)
        return made, tuple(variables)

    def converted(self, scope: list[Variable], dtype: str, source: Variable) -> list[Statement]:
        """A variable in another dtype, small enough for it: added to the scope."""
        result, text = self.fresh(dtype), "{n0}"  # XLA may leave out that the source is rounded
        if source.dtype == "c64" and dtype != "c64":
            text = f"lax.real({text})"
        if dtype in INTEGERS and source.dtype in (*FLOATS, "c64"):
            # Conversions from beyond have tests of their own: XLA on a CPU differs.
            text = f"jnp.nan_to_num(jnp.clip({text}, -100, 100))"
            if dtype == "u32":
                text = f"abs({text})"
        if dtype == "b":
            text = f"{text} > 0"
        text = f"({text}).astype({dtype})"
        if dtype in ("bf16", "f16"):
            text = f"{{N}}({text})"
        scope.append(result)
        return [Statement(result, text, (source,))]

    def dtype(self, scope: list[Variable], among: tuple[str, ...]) -> str:
        """One of these, by preference one of which there are variables."""
        present = [v.dtype for v in scope if v.dtype in among]
        return self.rng.choice(present or among)

    def _made(self, scope, dtype: str, text: str, operands, blocks=()) -> Statement:
        result = self.fresh(dtype)
        scope.append(result)
        return Statement(result, text, tuple(operands), tuple(blocks))

    # ---- Kinds of statements ----

    def _operator(self, scope, depth):
        while True:
            row = self.rng.choice(list(operators.OPERATORS.values()))
            dtype = self.dtype(scope, DTYPES)
            result = _result_of(row.name, dtype, row.arity)
            if result is not None and row.name not in LEFT_OUT:
                break
        made, operands = self.some(scope, (dtype,) * row.arity)
        yield from made
        mark = "" if row.name in _EXACT else "n"
        guard = "{0}" if dtype not in FLOATS else _GUARDS[row.operand_domains()[0]]
        if self.rng.random() < 0.15:
            guard = "{0}"
        texts = [guard.format(f"{{{mark}{k}}}", dtype) for k in range(row.arity)]
        if row.name == "pow":
            texts[1:] = ["{n1}"]
        if row.name in ("div", "rem") and dtype in INTEGERS:
            texts[1:] = [
                f"({{1}} | {dtype}(1))"
            ]  # XLA ends the process where it divides by a known 0
        yield self._made(
            scope, result, f"lax.{row.function or row.name}({', '.join(texts)})", operands
        )

    def _literal(self, scope, depth):
        dtype = self.dtype(scope, (*FLOATS, *INTEGERS, "c64"))
        made, operands = self.some(scope, (dtype,))
        yield from made
        values = ("2", "3", "5") if dtype in INTEGERS else ("0.5", "1.5", "0.25", "1", "0.1", "3")
        value = f"{dtype}({self.rng.choice(values)})"
        if self.rng.random() < 0.3 and dtype in ("f32", "i32"):
            value = self.rng.choice(values[:3])  # of no dtype of its own
        text = self.rng.choice(["{n0} + %s", "{n0} * %s", "%s - {n0}", "{n0} * %s + %s"])
        yield self._made(scope, dtype, text.replace("%s", value), operands)

    def _where(self, scope, depth):
        dtype = self.dtype(scope, DTYPES)
        made, operands = self.some(scope, ("b", dtype, dtype))
        yield from made
        yield self._made(scope, dtype, "jnp.where({0}, {1}, {2})", operands)

    def _convert(self, scope, depth):
        yield from self.converted(scope, self.rng.choice(DTYPES), self.rng.choice(scope))

    def _power(self, scope, depth):
        dtype = self.dtype(scope, (*FLOATS, "c64"))
        made, operands = self.some(scope, (dtype,))
        yield from made
        texts = ["{n0} ** 2", "{n0} ** 3", "{n0} ** -1"]
        if dtype in FLOATS:
            texts += ["jnp.round({0})", "jax.nn.relu({0})", "jax.nn.silu({n0})", "{n0} % 2"]
            texts += ["lax.stop_gradient({0})", "jnp.abs({0})", "jax.nn.gelu({n0})"]
        yield self._made(scope, dtype, self.rng.choice(texts), operands)

    def _array(self, scope, depth):
        dtype = self.dtype(scope, ("f32", "f64", "i32", "c64"))
        made, operands = self.some(scope, (dtype,) * 3)
        yield from made
        index, operand = self.one(scope, "i32")
        yield from index
        stack = "jnp.stack([{n0}, {n1}, {n2}])"
        texts = [f"jnp.sum({stack})", f"jnp.prod({stack})", f"jnp.dot({stack}, {stack}[::-1])",
                 f"{stack}[{{3}} % 3]", f"jnp.sum(jnp.outer({stack}, {stack})[:2])",
                 f"{stack}.at[1].set({{n0}})[{{3}} % 3]"]  # fmt: skip
        if dtype != "c64":
            texts.append(f"jnp.max(jnp.nan_to_num({stack}))")
        text = f"({self.rng.choice(texts)}).astype({dtype})"
        yield self._made(scope, dtype, text, (*operands, operand))

    def _table(self, scope, depth):
        made, operands = self.some(scope, ("i32", "f32"))
        yield from made
        texts = [
            "jnp.asarray(TABLE)[{0} % 4]",
            "jnp.interp({n1}, KNOTS, TABLE)",
            "jnp.polyval(TABLE, {n1} / 8)",
        ]
        yield self._made(scope, "f32", self.rng.choice(texts), operands)

    def _branch(self, scope, depth):
        given = tuple(self.dtype(scope, DTYPES) for _ in range(self.rng.randint(1, 2)))
        result = self.dtype(scope, DTYPES)
        many = self.rng.random() < 0.3
        made, operands = self.some(scope, ("i32" if many else "b", *given))
        yield from made
        count = self.rng.randint(2, 3) if many else 2
        blocks = [self.block(scope, given, result, depth) for _ in range(count)]
        names = ", ".join(f"{{b{k}}}" for k in range(count))
        names = f"[{names}]" if many else names
        function = "switch" if many else "cond"
        arguments = ", ".join(f"{{{k + 1}}}" for k in range(len(given)))
        text = f"lax.{function}({{0}}, {names}, {arguments})"
        yield self._made(scope, result, text, operands, blocks)

    def _loop(self, scope, depth):
        first, second = (
            self.dtype(scope, ("f32", "f32", "f64", "bf16", "i32", "c64")) for _ in "ab"
        )
        made, operands = self.some(scope, (first, second, "i32"))
        yield from made
        start, steps = "({0}, {1})", "both({b0}, {b1})"
        texts = [
            f"lax.fori_loop(0, 3, {steps}, {start})[0]",
            f"lax.fori_loop(0, {{2}} % 4, {steps}, {start})[0]",
            f"lax.scan(lambda c, k: ({steps}(k, c), None), {start}, i32([1, 0, 2]))[0][0]",
            f"lax.scan(lambda c, k: ({steps}(k, c), {{b0}}(k, *c)), {start}, i32([1, 0]))[1].sum()"
            f".astype({first})",
            "lax.while_loop(lambda s: (s[0] < 3) & (abs(s[1][0]) < 4), "
            f"lambda s: (s[0] + 1, {steps}(*s)), (i32(0), {start}))[1][0]",
        ]
        text = self.rng.choice(texts)
        given = ("i32", first, second)
        blocks = [self.block(scope, given, result, depth) for result in (first, second)]
        yield self._made(scope, first, text, operands, blocks)

    def _call(self, scope, depth):
        given = tuple(self.dtype(scope, DTYPES) for _ in range(2))
        result = self.dtype(scope, DTYPES)
        made, operands = self.some(scope, given)
        yield from made
        block = self.block(scope, given, result, depth)
        function = self.rng.choice(["jax.jit", "jax.checkpoint", "elementwise"])
        text = function + "({b0})({0}, {1})"
        yield self._made(scope, result, text, operands, (block,))

    def _rule(self, scope, depth):
        """A function with a rule that says something else than its derivative."""
        first, second = (self.dtype(scope, ("f32", "f32", "f64", "bf16", "f16")) for _ in "ab")
        made, operands = self.some(scope, (first, second))
        yield from made
        given = (first, second)
        # A rule reads nothing of its surroundings: JAX refuses to differentiate by that.
        blocks = [self.block([], given, result, depth) for result in (first, first, first)]
        function = self.rng.choice(["with_jvp", "with_vjp"])
        text = f"{function}({{b0}}, {{b1}}, {{b2}})({{0}}, {{1}})"
        yield self._made(scope, first, text, operands, blocks)

    def _derivative(self, scope, depth):
        dtype = self.dtype(scope, FLOATS)
        made, operands = self.some(scope, (dtype, dtype))
        yield from made
        block = self.block(scope, (dtype,), dtype, depth)
        inner = block.texts()
        texts = ["jax.jvp({b0}, ({0},), ({1},))[1]", "jax.grad({b0})({0}) * {1}"]
        if "while_loop" in inner or "% 4, both" in inner:  # JAX has no reverse mode through these
            texts = texts[:1]
        if "with_vjp" in inner:  # nor forward mode through these
            texts = texts[1:] or ["{b0}({0})"]
        text = self.rng.choice(texts)
        yield self._made(scope, dtype, text, operands, (block,))
