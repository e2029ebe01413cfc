"""``cuda_functor``: from CUDA C++ for one element to a function of arrays."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_elementwise._cuda_functor.assigned import check_assigned
from jax_elementwise._cuda_functor.check import assert_agree
from jax_elementwise._cuda_functor.parsing import parse
from jax_elementwise._cuda_functor.primitive import Rules, bind, result_dtypes
from jax_elementwise._cuda_functor.source import Source, template_argument
from jax_elementwise._elementwise import ElementwiseFunction
from jax_elementwise._options import Options, make_options

__all__ = ["CudaFunctor", "cuda_functor"]


class CudaFunctor(ElementwiseFunction):
    """What ``cuda_functor`` returns: a function of arrays, which can check itself (``check``).

    Not constructed directly.
    """

    def __init__(self, source: Source, rules: Rules, options: Options) -> None:
        def fun(*scalars: Any) -> Any:
            return self._call_scalars(scalars)

        self._source = source
        self._rules = rules
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [p.name + "_" * keyword.iskeyword(p.name) for p in source.parameters]
        parameters = [inspect.Parameter(name, positional) for name in names]
        fun.__name__ = fun.__qualname__ = source.name
        fun.__doc__ = None
        fun.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        super().__init__(fun, (), source.name, options)
        self._takes_index = source.index is not None

    def __repr__(self) -> str:
        return f"<CUDA functor {self._source.name}>"

    def check(
        self, /, *args: Any, rtol: float | None = None, atol: float | None = None, **kwargs: Any
    ) -> None:
        """Compares the functor with its reference, and its ``jvp`` with the reference's.

        The functor runs as a kernel, whatever ``lowering`` says, and the reference by XLA.

        Args:
          *args: as for the functor itself; what it will be used on.
          rtol: how far a float may be off, relative to the reference; by default 16 units in the
            last place for float32 and float64, one for narrower floats.
          atol: likewise, absolute; by default a 256th of what ``rtol`` allows of the largest
            result.
          **kwargs: as ``*args``.

        Raises:
          AssertionError: where they differ, with the operands of the worst element.
          ValueError: if there is no reference.
          RuntimeError: where no kernel can be compiled.
        """
        reference = self._rules.reference
        if reference is None:
            raise ValueError(f"{self._source.name!r} has no reference= to compare it with")
        operands = self._operands(args, kwargs)
        by_reference = CudaFunctor(self._source, Rules(reference), self._options)
        # Not by calls, whose lowering the environment may override: two alike would agree.
        assert_agree(
            self._source.name,
            self._front_doors["kernel"],
            by_reference._front_doors["xla"],
            operands,
            rtol,
            atol,
            self._rules.jvp is not None,
        )

    # ---- Private ---------------------------------------------------------------------------------

    def _call(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super()._call(options, tuple(self._operands(args, kwargs)), {})

    def _operands(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arrays of a call, of the types that the functor declares."""
        name = self._source.name
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name!r}: {error}") from None
        operands = []
        for parameter, value in bound.arguments.items():
            if not jax.tree_util.all_leaves([value]):
                raise TypeError(f"{name!r} takes arrays, but argument {parameter!r} is {value!r}")
            operands.append(value if isinstance(value, jax.Array) else jnp.asarray(value))
        for p, x in zip(self._source.scalars, operands[len(self._source.inputs) :], strict=True):
            if x.ndim:
                raise TypeError(
                    f"{name!r}: the scalar {p.name!r} must be a number or an array of shape (), "
                    f"not of shape {x.shape}. Make it an input if every element has its own."
                )
        return _typed(self._source, operands)

    def _call_scalars(self, scalars: Sequence[Any]) -> Any:
        results = self._bind(scalars)
        return results[0] if len(results) == 1 else tuple(results)

    def _bind(self, scalars: Sequence[Any], *, is_tangent: bool = False) -> list[Any]:
        avals = [jax.typeof(x) for x in scalars]
        if self._source.struct is not None:
            template_argument(self._source, [str(aval.dtype) for aval in avals])  # or an error
        outs = result_dtypes(self._source, self._rules, avals)
        check_assigned(self._source, [str(aval.dtype) for aval in avals], outs)
        results: list[Any] = bind(self._source, self._rules, outs, *scalars, is_tangent=is_tangent)
        return results

    def _tangent_rule(self) -> Callable[..., Any]:
        """What another functor calls if its ``jvp`` is this one: a function of scalars."""

        def rule(*scalars: Any) -> Any:
            count = len(self._source.parameters)
            if len(scalars) != count:
                raise TypeError(
                    f"the jvp {self._source.name!r} has {count} operands, and is given "
                    f"{len(scalars)}: the operands of the functor, then the tangents of those that "
                    "are floats"
                )
            return self._bind(_typed(self._source, list(scalars)), is_tangent=True)

        return rule


def cuda_functor(
    source: str,
    *,
    inputs: str | Sequence[str] | None = None,
    scalars: str | Sequence[str] = (),
    outputs: Any = None,
    index: str | None = None,
    name: str | None = None,
    reference: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    preamble: str = "",
    headers: Mapping[str, str] | None = None,
    fast_math: bool = False,
    lowering: str = "auto",
    input_output_aliases: dict[int, int] | None = None,
) -> CudaFunctor:
    """Makes a function of arrays from CUDA C++ that computes one element.

    The text becomes part of one kernel, as the functions of ``elementwise`` do, and the result is
    an ordinary JAX function likewise: ``jit``, ``vmap`` and ``shard_map`` apply, arguments
    broadcast, and derivatives are taken by the rules that are given. Called with scalars inside
    of an ``elementwise`` function, it becomes part of that function's kernel.

    ``source`` is one of

    - an expression of the inputs and scalars: ``"alpha * x + y"``;
    - the statements of a function of them: ``"float z = x * x; return z + y;"``;
    - statements that assign to the names of ``outputs``: ``"s = x + y; d = x - y;"``;
    - a ``struct`` with ``R operator()(inputs...) const``, a template or not, which may be
      constructed from the scalars: ``Functor{scalars...}``. With several results it has
      ``void operator()(inputs..., results&...) const``. If it has
      ``void Apply2(R* out, const T* in...) const`` for the types of a call, pairs of elements
      are computed by it.

    Floats of 16 and 8 bits have CUDA's types, ``__half`` and so on, with CUDA's arithmetic: every
    operation is rounded. CUDA's mathematical functions and intrinsics are there without a header,
    on a CPU too, but for roundings other than to nearest, and for several numbers in one word.
    ``__device__`` may be left out.

    On a CPU the same text is compiled by the machine's C++ compiler. Without one, and with
    ``lowering="xla"``, the reference is evaluated.

    Args:
      source: CUDA C++.
      inputs: their names, as ``"x, y"``, perhaps with types: ``"float x, T y"``. A dtype, or what
        C++ calls it, is required of the argument; a capital letter is one dtype in all its places
        and the name of that type in ``source``. A struct's are those of its ``operator()``.
      scalars: names of operands of rank 0, likewise. They are read once per thread, and a new value
        neither traces nor compiles again.
      outputs: dtype of the result, or dtypes of several; or declarations, as ``"T z, bool found"``,
        to whose names statements assign. One that is an input, too, is a variable that begins with
        the input's value; every other must be assigned before it is read, on every path. By default
        there is one, of the type that the reference has, or else the C++: a compiler is then asked,
        once per types of operands.
      index: what ``source`` calls the index of the element, in row-major order of the joint shape
        of this call, whatever ``vmap`` adds around it. A ``long long``; for a struct, the last
        parameter of ``operator()``, before results.
      name: for messages, kernels and profiles; by default the struct's. ``"Pick<float>"`` is that
        instance of a class template. By default it is that of the type of the inputs and scalars
        that the struct declares by the template's parameter.
      reference: a Python function of the same scalars (inputs, scalars, index), in terms of
        ``jax.numpy``. JAX differentiates it where there is no ``jvp``, XLA evaluates it where there
        is no kernel, and ``check`` compares with it.
      jvp: a function of the same scalars, then of the tangents of those that are floats, in which
        it is linear. It gives the tangents of the results that are floats. In Python, or another
        CUDA functor.
      preamble: C++ before the functor: helper functions, constants.
      headers: texts of the headers that ``source`` and ``preamble`` include, by name. They travel
        with compiled and exported programs. CUDA's own for these types need not be given.
      fast_math: as for ``elementwise``.
      lowering: as for ``elementwise``; ``"auto"`` uses a kernel on a CPU too.
      input_output_aliases: as for ``elementwise``; inputs are counted first, then scalars.

    Raises:
      TypeError: at the call, for a wrong number of arguments, for one that is no array or of
        another dtype than declared, and where the type of the result or of a template is not known;
        at once for arguments of the wrong type.
      ValueError: at once, for text without a functor, for what cannot be a name or a type, for
        headers that are not given; at the call, for arguments that do not broadcast.
      CompileError: at the call, with the compiler's message and the lines of ``source``; or where a
        result may be left without a value.
      NotImplementedError: at differentiation, if neither ``jvp`` nor ``reference`` is given; by
        ``lowering="xla"``, without a reference.
      RuntimeError: at the call, on a CPU without a compiler, if there is no reference.

    What the compiler cannot see, C++ does not forgive: code that reads out of bounds of an array
    of its own can crash the process.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jax_elementwise as je
      >>> axpy = je.cuda_functor("alpha * x + y", inputs="x, y", scalars="alpha", name="axpy",
      ...                        reference=lambda x, y, alpha: alpha * x + y)
      >>> x = jnp.array([1.0, 2.0])
      >>> axpy(x, 1.0, alpha=3.0)
      Array([4., 7.], dtype=float32)
      >>> jax.grad(lambda alpha: axpy(x, x, alpha).sum())(3.0)
      Array(3., dtype=float32, weak_type=True)
      >>> axpy.check(x, x, 0.1)

      A struct that is constructed from its scalar, with a template for all types:

      >>> leaky = je.cuda_functor('''
      ... struct Leaky {
      ...   float slope;
      ...   template <class T>
      ...   __device__ T operator()(T x) const { return x > T(0) ? x : T(slope * float(x)); }
      ... };''', scalars="float slope", jvp=lambda x, slope, dx, dslope: jnp.where(
      ...     x > 0, dx, slope * dx + x * dslope))
      >>> leaky(jnp.array([-2.0, 3.0]), 0.5)
      Array([-1.,  3.], dtype=float32)
    """
    parsed = parse(
        source,
        name=name,
        inputs=inputs,
        scalars=scalars,
        outputs=outputs,
        index=index,
        preamble=preamble,
        headers=headers or {},
    )
    for what, given in (("reference", reference), ("jvp", jvp)):
        if given is not None and not callable(given):
            raise TypeError(f"{what} must be a function, not {given!r}")
    rule = jvp._tangent_rule() if isinstance(jvp, CudaFunctor) else jvp
    options = make_options(parsed.name, fast_math, lowering, input_output_aliases)
    return CudaFunctor(parsed, Rules(reference, rule), options)


# ---- Types of operands ---------------------------------------------------------------------------


def _typed(source: Source, operands: list[Any]) -> list[Any]:
    """Operands of the declared types. Weakly typed ones are converted, as everywhere in JAX."""
    letters: dict[str, Any] = {}
    for p, x in zip(source.parameters, operands, strict=True):
        if p.is_letter and not _is_weak(x):
            first = letters.setdefault(str(p.type), x.dtype)
            if x.dtype != first:
                raise TypeError(
                    f"{source.name!r}: argument {p.name!r} has dtype {x.dtype}, and another one of "
                    f"the same type {p.type} has {first}. Convert one of them."
                )
    strong = [x for x in operands if not _is_weak(x)]
    for letter in {str(p.type) for p in source.parameters if p.is_letter} - set(letters):
        pairs = zip(source.parameters, operands, strict=True)
        letters[letter] = jnp.result_type(*strong, *(x for p, x in pairs if p.type == letter))
    typed = []
    for p, x in zip(source.parameters, operands, strict=True):
        wanted = letters.get(str(p.type)) if p.is_letter else p.type
        if _is_weak(x):
            wanted = wanted or jnp.result_type(x, *strong)
            if _kind(x.dtype) > _kind(wanted):
                raise TypeError(
                    f"{source.name!r}: argument {p.name!r} is a {x.dtype}, and must be {wanted}"
                )
        elif wanted is not None and x.dtype != wanted:
            raise TypeError(
                f"{source.name!r}: argument {p.name!r} has dtype {x.dtype}, and must be {wanted}. "
                f"Convert it{_width_hint(wanted)}."
            )
        typed.append(x if wanted is None else jnp.asarray(x, wanted))
    return typed


def _width_hint(dtype: Any) -> str:
    is_too_wide = jax.dtypes.canonicalize_dtype(dtype) != jnp.dtype(dtype)
    return ", which takes jax_enable_x64" if is_too_wide else ""


def _kind(dtype: Any) -> int:
    """What a number of a dtype is: 2 if complex, 1 if a float, 0 if an integer or a bool."""
    return jnp.issubdtype(dtype, jnp.inexact) + jnp.issubdtype(dtype, jnp.complexfloating)


def _is_weak(x: Any) -> bool:
    return bool(jax.typeof(x).weak_type)
