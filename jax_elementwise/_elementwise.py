"""``elementwise``: from a Python function of scalars to a function of arrays."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp

from jax_elementwise import _compat, _extension
from jax_elementwise._arguments import (
    Arguments,
    check_dtypes,
    check_shapes,
    is_extended,
    signature_of,
)
from jax_elementwise._codegen.kernel import Kernel, kernel_for
from jax_elementwise._functor.constants import CapturedArrayError
from jax_elementwise._functor.functor import Functor
from jax_elementwise._functor.index import Index, index_dtype, with_index
from jax_elementwise._functor.trace import trace
from jax_elementwise._lowering.xla import evaluate, spread
from jax_elementwise._options import LOWERINGS, Options, check_aliases, make_options
from jax_elementwise._primitive import apply, elementwise_p

__all__ = ["ElementwiseFunction", "elementwise"]

_ENVIRONMENT = "JAX_ELEMENTWISE_LOWERING"


class ElementwiseFunction:
    """What ``elementwise`` returns: a function of arrays, which can show its kernel.

    Not constructed directly.
    """

    _takes_index = False  # whether the function of one element has the index as last operand

    def __init__(
        self,
        fun: Callable[..., Any],
        static_argnames: tuple[str, ...],
        name: str,
        options: Options,
    ) -> None:
        # Without its attributes, which may be those of another ElementwiseFunction.
        functools.update_wrapper(self, fun, updated=())
        self._fun = fun
        self._static_argnames = static_argnames
        self._name = name
        self._options = options
        self._signature = signature_of(fun)
        # One compiled front door per lowering: it gives cached dispatch, weakly typed scalar
        # operands and static arguments for a few microseconds.
        self._front_doors = {lowering: self._make_front_door(lowering) for lowering in LOWERINGS}
        self._front_door = self._front_doors[options.lowering]

    def __repr__(self) -> str:
        return f"<elementwise function {self._name}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Applies the function to every element of the broadcast arguments.

        Args:
          *args: arrays or pytrees of arrays, of any shapes that broadcast, and Python scalars.
          **kwargs: likewise; and static arguments.

        Returns:
          what the function returns for one element, with an array in the place of every scalar: of
          the joint shape of all arguments, and of the dtype that the function gives.

        Raises:
          TypeError, ValueError, NotImplementedError, OverflowError: as ``elementwise`` says.
        """
        override = _extension.environment(_ENVIRONMENT)
        if not override:
            return self._front_door(*args, **kwargs)
        if override not in LOWERINGS:
            raise ValueError(f"{_ENVIRONMENT} must be one of {LOWERINGS}, not {override!r}")
        return self._front_doors[override](*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: the instance, which must be a pytree, is the first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def cuda_source(self, /, *args: Any, **kwargs: Any) -> str:
        """The CUDA C++ of the kernel for these arguments.

        Args:
          *args: as for the function itself; ``jax.ShapeDtypeStruct`` will do.
          **kwargs: likewise.

        Returns:
          the text that NVRTC compiles, whatever this machine has.

        Raises:
          ValueError: if nothing is computed: no argument is an array, or all results are arguments.

        Example:
          >>> import jax, jax_elementwise as je
          >>> x = jax.ShapeDtypeStruct((8,), "float32")
          >>> "__global__" in je.elementwise(lambda x: 2 * x).cuda_source(x)
          True
        """
        return self._kernel(args, kwargs).source

    def cubin(self, /, *args: Any, arch: str = "sm_90", **kwargs: Any) -> bytes:
        """The machine code of the kernel for these arguments.

        Needs NVRTC, which comes with ``jax[cuda12]``, ``jax[cuda13]`` or the package
        ``nvidia-cuda-nvrtc``, but no GPU.

        Args:
          *args: as for ``cuda_source``.
          arch: the GPU architecture, ``"sm_75"`` or newer. Variants such as ``"sm_90a"`` are
            refused: kernels use nothing that only they have.
          **kwargs: as for ``cuda_source``.

        Returns:
          a cubin, an ELF file that ``cuobjdump`` and ``nvdisasm`` read.

        Raises:
          ValueError: as ``cuda_source``; if ``arch`` is not of that form, or the compiler does not
            know it.
          CompileError: if the kernel does not compile.
          RuntimeError: if there is no compiler.
        """
        number = re.fullmatch(r"sm_([0-9]{2,3})", str(arch))
        if number is None:
            raise ValueError(f"arch must be like 'sm_90', not {arch!r}")
        kernel = self._kernel(args, kwargs)
        _extension.require_architecture(int(number[1]))
        return _extension.compile(kernel, int(number[1]))

    # ---- Private ---------------------------------------------------------------------------------

    def _make_front_door(self, lowering: str) -> Any:
        options = dataclasses.replace(self._options, lowering=lowering)

        @functools.wraps(self._fun)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(options, args, kwargs)

        return jax.jit(call, static_argnames=self._static_argnames, inline=_compat.INLINE)

    def _call(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            arguments = Arguments(self._signature, self._static_argnames, args, kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name!r}: {error}") from None
        operands = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in arguments.leaves]
        check_dtypes(self._name, arguments.names, operands, options.lowering)
        check_shapes(self._name, arguments.names, operands)

        count = len(operands)
        avals, index = [jax.typeof(x) for x in operands], None
        if self._takes_index:
            index = Index(count, jnp.broadcast_shapes(*(x.shape for x in operands)))
            avals.append(jax.ShapeDtypeStruct((), index_dtype(index.shape, self._name)))

        @functools.wraps(self._fun)
        def fun(*scalars: Any) -> Any:
            return arguments.call(self._fun, scalars[:count], *scalars[count:])

        try:
            traced = trace(fun, avals, self._name)
        except CapturedArrayError:
            if options.lowering != "xla":
                raise
            return _by_vmap(fun, operands, index)
        dtypes = [aval.dtype for aval in traced.functor.out_avals]
        check_aliases(
            options.aliases, self._name, arguments.names, operands, dtypes, traced.out_tree
        )
        if options.lowering == "xla" and not _is_for_primitive(traced.functor):
            return _by_vmap(fun, operands, index)
        operands = [*operands, *traced.captured]
        if operands:
            results = apply(traced.functor, operands, options=options, index=index)
        else:  # the primitive has at least one
            results = evaluate(traced.functor, operands, index)
        return jax.tree.unflatten(traced.out_tree, results)

    def _kernel(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kernel:
        traced = self._front_doors["kernel"].trace(*args, **kwargs)
        for equation in traced.jaxpr.eqns:
            if equation.primitive is elementwise_p:
                options = equation.params["options"]
                return kernel_for(
                    equation.params["functor"],
                    [atom.aval.shape for atom in equation.invars],
                    equation.outvars[0].aval.shape,
                    fast_math=options.fast_math,
                    aliases=options.aliases,
                    index=equation.params["index"],
                )
        raise ValueError(
            f"{self._name!r} computes nothing, so there is no kernel: it has no array arguments, "
            "or returns them as they are"
        )


@overload
def elementwise(
    fun: Callable[..., Any],
    *,
    static_argnames: str | Iterable[str] = (),
    name: str | None = None,
    fast_math: bool = False,
    lowering: str = "auto",
    input_output_aliases: dict[int, int] | None = None,
) -> ElementwiseFunction: ...


@overload
def elementwise(
    fun: None = None,
    *,
    static_argnames: str | Iterable[str] = (),
    name: str | None = None,
    fast_math: bool = False,
    lowering: str = "auto",
    input_output_aliases: dict[int, int] | None = None,
) -> Callable[[Callable[..., Any]], ElementwiseFunction]: ...


def elementwise(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnames: str | Iterable[str] = (),
    name: str | None = None,
    fast_math: bool = False,
    lowering: str = "auto",
    input_output_aliases: dict[int, int] | None = None,
) -> Any:
    """Makes a function of arrays from a function of one element.

    The function is traced with scalars and becomes one kernel, whatever it consists of: each input
    is read once and each output written once. The result is an ordinary JAX function: ``jit``,
    ``vmap``, ``jvp`` and ``grad`` (to any order) and ``shard_map`` apply, and its whole backward
    pass is one kernel too.

    Arguments of the wrapped function are arrays or pytrees of arrays. They broadcast against each
    other as in NumPy, without being written out. Python scalars are operands too, weakly typed as
    everywhere in JAX: a new value neither traces nor compiles again. Results have the structure
    that the function returns, and **every** leaf has the joint shape of all arguments, also one
    that depends on some of them only. The dtypes of results are those the function gives for
    scalars.

    Scalars that the function captures from outside are operands and are differentiated, if they are
    JAX arrays or tracers; Python and NumPy scalars are constants of the trace. Captured arrays of
    up to 64 entries are constants too: tables to index, to interpolate in, to sum over. Larger
    ones, and arrays that are being traced, are an error: pass them as arguments. Arrays of up to
    64 entries may also be made inside, as by ``jnp.stack([x, y])``.

    Floats of 8 and 16 bits are computed in float32 and rounded at the results and at conversions
    that the function asks for, not after every operation.

    Args:
      fun: takes scalars, or pytrees of scalars, and returns a scalar or a pytree of scalars, in
        terms of ``jax.numpy`` and ``jax.lax``. Without it, a decorator is returned.
      static_argnames: names of arguments that are not arrays, as for ``jax.jit``: each new
        (hashable) value traces anew.
      name: what kernels and profiles show; the function's own name by default.
      fast_math: compile with ``--use_fast_math``: approximate divisions, roots and transcendental
        functions, and subnormals flushed to zero. Only kernels heed it.
      lowering: ``"auto"`` uses a kernel on CUDA and, for functions with loops, on a CPU, and XLA's
        operations elsewhere, and where kernels cannot be compiled, with a warning. ``"kernel"``
        uses one on a CPU for every function, by the machine's C++ compiler (``$CXX``, ``c++``,
        ``g++`` or ``clang++``), and makes it an error where none can be compiled.
        ``"xla"`` always uses XLA's operations; it takes functions for which no kernel can be
        generated, and allows ``jax.debug.print``. The environment variable
        ``JAX_ELEMENTWISE_LOWERING``, read whenever a function is called or traced, overrides it
        for all functions.
      input_output_aliases: ``{argument: result}``: a kernel may write the result into the buffer
        of the argument, which must have the dtype of the result and the joint shape. Both are
        numbers, from 0: arguments are the arrays of the call in the order of the function's
        parameters, pytrees flattened, without static ones and defaults; results are the leaves
        that the function returns. The update is in place where the caller donates the argument
        (``jax.jit(..., donate_argnums=...)``) or nobody reads it afterwards. Otherwise XLA copies
        it first, so values are right in any case, and an alias that nothing is donated for costs
        that copy. Derivatives and platforms without kernels do without aliases, and so does an
        argument that ``vmap`` does not map. ``jax.jit`` pairs donated arguments with results of
        their type in order, so return them in the order of the arguments.

    Returns:
      the function of arrays, an ``ElementwiseFunction``; without ``fun``, a decorator.

    Raises:
      TypeError: at the call, for an argument that is no array or has an unsupported dtype, for a
        function that returns anything but scalars, and for an alias of two dtypes; at once for
        aliases that are no dict of ints.
      ValueError: at the call, for arguments that do not broadcast, for captured arrays that are
        large or traced, for aliases of what the call does not have, and for an alias of an argument
        that is broadcast; at once for options that do not exist, and for aliases with negative
        numbers or one result twice.
      NotImplementedError: at the call, for operations that no kernel can be generated for.
      OverflowError: at the call, for Python integers that do not fit, as in ``jax.jit``.
      RuntimeError: by ``lowering="kernel"``, where no kernel can be compiled.
      CompileError: by ``lowering="kernel"``, where the compiler refuses a kernel, which would be a
        fault of this package. With ``"auto"`` this is a warning, and XLA's operations are used.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jax_elementwise as je
      >>> @je.elementwise
      ... def shrink(x, threshold):
      ...     return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0)
      >>> x = jnp.array([-3.0, 0.25, 2.0])
      >>> shrink(x, 0.5)
      Array([-2.5,  0. ,  1.5], dtype=float32)
      >>> jax.vmap(shrink, in_axes=(None, 0))(x, jnp.array([0.5, 2.0])).shape
      (2, 3)
      >>> jax.grad(lambda x: shrink(x, 0.5).sum())(x)
      Array([1., 0., 1.], dtype=float32)

      A step of an optimiser that needs no second copy of the parameters:

      >>> @je.elementwise(input_output_aliases={0: 0, 1: 1})
      ... def momentum(p, v, g):
      ...     v = 0.5 * v + g
      ...     return p - 0.25 * v, v
      >>> step = jax.jit(momentum, donate_argnums=(0, 1))
      >>> p, v = step(jnp.ones(2), jnp.zeros(2), jnp.array([1.0, 2.0]))
      >>> p
      Array([0.75, 0.5 ], dtype=float32)
    """
    if fun is None:
        return functools.partial(
            elementwise,
            static_argnames=static_argnames,
            name=name,
            fast_math=fast_math,
            lowering=lowering,
            input_output_aliases=input_output_aliases,
        )
    if not callable(fun):
        raise TypeError(f"elementwise makes a function from a function, not from {fun!r}")
    if name is not None and not (isinstance(name, str) and name):
        raise TypeError(f"name must be a string that is not empty, not {name!r}")
    static = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    shown = name or _name_of(fun)
    options = make_options(shown, fast_math, lowering, input_output_aliases)
    return ElementwiseFunction(fun, static, shown, options)


# ---- What only XLA computes ----------------------------------------------------------------------


def _is_for_primitive(functor: Functor) -> bool:
    """Whether the primitive takes a functor: it has no effects, and numbers only."""
    avals = (*functor.in_avals, *functor.out_avals)
    return not functor.has_effects and not any(map(is_extended, avals))


def _by_vmap(fun: Callable[..., Any], operands: Sequence[Any], index: Index | None) -> Any:
    """A function on arrays as ``jax.vmap`` has it, where the primitive does not take it."""
    trees = []

    def flat(*scalars: Any) -> list[Any]:
        leaves, tree = jax.tree.flatten(fun(*scalars))
        trees.append(tree)
        return leaves

    if index is not None:
        dtype = index_dtype(index.shape, "")
        operands = with_index(index, operands, index.array(dtype))
    results = spread(flat, operands)
    return jax.tree.unflatten(trees[-1], results)


def _name_of(fun: Callable[..., Any]) -> str:
    while isinstance(fun, functools.partial):
        fun = fun.func
    return str(getattr(fun, "__name__", type(fun).__name__))
