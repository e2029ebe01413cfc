"""Derivatives of any order, in both modes, against JAX's own of the same scalar function."""

import functools

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SMOOTH, assert_same, calls, kernels, lowered, random_array, reference
from jax import lax
from jax.test_util import check_grads
from support.sampling import sampled

import jax_elementwise as je

SHAPES = ((2, 3), (3,), (2, 1))


def total(f):
    """The sum of all results of ``f``, each with a weight of its own."""

    def loss(*operands):
        leaves = jax.tree.leaves(f(*operands))
        return sum((i + 1) * leaf.astype(jnp.float32).sum() for i, leaf in enumerate(leaves))

    return loss


def both(fun):
    return je.elementwise(fun), reference(fun)


# ---- Against finite differences and against JAX --------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize(
    "case", sampled(SMOOTH, ["gelu", "custom_jvp", "branch", "many", "three"]), ids=str
)
def test_finite_differences_agree_to_second_order(case, rng, x64):
    operands = [
        random_array(rng, shape, "float64", case.low)
        for shape, _ in zip(((3,), (2, 1), ()), case.dtypes, strict=False)
    ]
    f = je.elementwise(case.fun)
    check_grads(f, operands, order=2, modes=["fwd", "rev"], atol=1e-5, rtol=1e-5, eps=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_jvp_and_gradient_equal_those_of_jax(case, rng):
    operands = case.operands(rng, SHAPES[: len(case.dtypes)])
    tangents = case.operands(rng, SHAPES[: len(case.dtypes)])
    f, r = both(case.fun)
    assert_same(jax.jvp(f, operands, tangents), jax.jvp(r, operands, tangents), eps=32)
    every = tuple(range(len(operands)))
    expected = jax.grad(total(r), every)(*operands)
    assert_same(jax.grad(total(f), every)(*operands), expected, eps=64)
    assert_same(jax.jit(jax.grad(total(f), every))(*operands), expected, eps=64)


@pytest.mark.parametrize("wrap", [jax.jacfwd, jax.jacrev, jax.hessian], ids=lambda w: w.__name__)
@pytest.mark.parametrize("jit", sampled([False, True], [True]))
def test_jacobians_and_hessians(wrap, jit, rng):
    operands = [random_array(rng, shape) for shape in SHAPES]
    f, r = both(lambda x, y, z: jnp.tanh(x * y) + z**3 * x)
    mine = wrap(f, (0, 1, 2))
    assert_same((jax.jit(mine) if jit else mine)(*operands), wrap(r, (0, 1, 2))(*operands), eps=32)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "third",
    [
        lambda f: jax.grad(lambda x: jax.grad(lambda x: jax.grad(f)(x).sum())(x).sum()),
        lambda f: jax.vmap(jax.jacfwd(jax.jacrev(jax.jacfwd(f)))),
        lambda f: jax.vmap(jax.jacfwd(jax.jacfwd(jax.grad(f)))),
        lambda f: lambda x: jax.jvp(jax.grad(lambda x: jax.grad(f)(x).sum()), (x,), (x,))[1],
    ],
    ids=["rev_rev_rev", "fwd_rev_fwd", "fwd_fwd_rev", "jvp_of_rev_rev"],
)
def test_third_order(third, rng):
    f, r = both(lambda x: jnp.tanh(x) * x**2)
    x = random_array(rng, (4,))
    assert_same(third(lambda x: f(x).sum())(x), third(lambda x: r(x).sum())(x), eps=64)


@pytest.mark.exhaustive
def test_fourth_order_of_two_operands(rng, x64):
    f, r = both(lambda x, y: jnp.sin(x * y) / (1 + y**2))
    x, y = random_array(rng, (), "float64"), random_array(rng, (), "float64")
    for order in ("0101", "1111", "0011"):
        mine, theirs = f, r
        for argument in order:
            mine, theirs = jax.grad(mine, int(argument)), jax.grad(theirs, int(argument))
        assert_same(mine(x, y), theirs(x, y), eps=1e3)


def test_linearize_and_vjp_give_functions_of_the_right_value(rng):
    operands = [random_array(rng, shape) for shape in SHAPES]
    f, r = both(lambda x, y, z: jnp.sin(x) * y + jnp.exp(z))
    value, linear = jax.linearize(f, *operands)
    assert_same(value, r(*operands))
    assert_same(linear(*operands), jax.jvp(r, operands, operands)[1], eps=16)
    value, pullback = jax.vjp(f, *operands)
    assert_same(pullback(value), jax.vjp(r, *operands)[1](value), eps=32)
    assert_same(jax.linear_transpose(linear, *operands)(value), pullback(value), eps=32)


# ---- Shapes --------------------------------------------------------------------------------------


def test_ranks_1_to_4_alternately_in_one_process(rng):
    f = je.elementwise(lambda a: 3 * a * a)
    gradient = jax.jit(jax.grad(lambda a: f(a).sum()))
    for _ in range(2):
        for shape in ((2, 3, 4, 5), (120,), (2, 1, 1, 60), (3, 40), (1,), ()):
            a = random_array(rng, shape)
            assert_same(gradient(a), 6 * a, eps=2)
            check_grads(f, (a,), order=1, atol=1e-2, rtol=1e-2)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 1), (1, 3)), ((), (2, 3)), ((1, 1), (3,)), ((1,), ()),
     ((1,), (2, 0)), ((4, 1, 3), (2, 1)), ((3,), (1, 3)), ((1, 2, 1), (3, 1, 4))],
    ids=str,
)  # fmt: skip
def test_gradients_of_broadcast_operands_have_their_shapes(shapes, rng):
    operands = [random_array(rng, shape) for shape in shapes]
    f, r = both(lambda x, y: jnp.sin(x) * y + x)
    gradients = jax.grad(total(f), (0, 1))(*operands)
    assert_same(gradients, jax.grad(total(r), (0, 1))(*operands), eps=32)
    assert [g.shape for g in gradients] == list(shapes)


def test_a_tangent_has_the_joint_shape_whatever_it_depends_on(rng):
    x, y = random_array(rng, (2, 3)), random_array(rng, (3,))
    f = je.elementwise(lambda x, y: x + 2 * y)
    tangent = jax.jvp(lambda y: f(x, y), (y,), (y,))[1]
    np.testing.assert_array_equal(tangent, np.broadcast_to(2 * y, (2, 3)))
    np.testing.assert_array_equal(jax.grad(lambda y: f(x, y).sum())(y), [4, 4, 4])
    np.testing.assert_array_equal(jax.jacrev(lambda y: f(x, y).sum(0))(y), 4 * np.eye(3))


# ---- Dtypes --------------------------------------------------------------------------------------


def test_each_gradient_has_its_operands_dtype():
    a, b = jnp.ones((3, 1), jnp.bfloat16), jnp.arange(4.0)
    f = je.elementwise(lambda a, b: a * b)
    by_a, by_b = jax.grad(lambda a, b: f(a, b).sum(), (0, 1))(a, b)
    assert (by_a.dtype, by_b.dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_array_equal(by_a, np.full((3, 1), 6))
    np.testing.assert_array_equal(by_b, np.full(4, 3))


@pytest.mark.parametrize("dtypes", [("bfloat16", "float32"), ("float16", "bfloat16"),
                                    ("float32", "float16")], ids=str)  # fmt: skip
def test_mixed_precision_in_both_modes(dtypes, rng):
    operands = [random_array(rng, (8,), dtype) for dtype in dtypes]
    f, r = both(lambda x, y: (jnp.sin(x) * y, x.astype(jnp.float32)))
    same = functools.partial(assert_same, eps=4, through=operands[0].dtype)
    same(jax.jvp(f, operands, operands), jax.jvp(r, operands, operands))
    gradients = jax.grad(total(f), (0, 1))(*operands)
    same(gradients, jax.grad(total(r), (0, 1))(*operands))
    assert tuple(str(g.dtype) for g in gradients) == dtypes


def test_integers_and_bools_have_no_gradient(rng):
    x, n = random_array(rng, (4,)), jnp.arange(4)
    mask = jnp.array([True, False, True, True])
    f, r = both(lambda x, n, mask: (jnp.where(mask, x * n, x), n * 2, mask))
    tangents = (x, np.zeros(4, jax.dtypes.float0), np.zeros(4, jax.dtypes.float0))
    mine, theirs = (jax.jvp(g, (x, n, mask), tangents) for g in (f, r))
    assert_same(mine[0], theirs[0])
    assert_same(mine[1][0], theirs[1][0])
    assert [t.dtype for t in mine[1][1:]] == [jax.dtypes.float0] * 2

    def loss(x, n, mask):
        return f(x, n, mask)[0].sum()

    np.testing.assert_array_equal(jax.grad(loss)(x, n, mask), [0, 1, 2, 3])
    gradients = jax.grad(loss, (0, 1, 2), allow_int=True)(x, n, mask)
    assert [g.dtype for g in gradients[1:]] == [jax.dtypes.float0] * 2
    assert [g.shape for g in gradients[1:]] == [(4,)] * 2


def test_complex_operands_of_the_xla_lowering(rng):
    z = random_array(rng, (4,)) + 1j * random_array(rng, (4,))
    w = random_array(rng, ()) - 2j
    f, r = both(lambda z, w: (jnp.exp(z) * w, jnp.abs(z * w), jnp.conj(z) * z.real))
    f = je.elementwise(f.__wrapped__, lowering="xla")

    def loss(f, z, w):
        product, size, mixed = f(z, w)
        return (size + product.imag + jnp.abs(mixed)).sum()

    assert_same(f(z, w), r(z, w))
    assert_same(jax.jvp(f, (z, w), (w * z, w)), jax.jvp(r, (z, w), (w * z, w)), eps=32)
    mine, theirs = (jax.grad(functools.partial(loss, g), (0, 1))(z, w) for g in (f, r))
    assert_same(mine, theirs, eps=64)
    holomorphic = jax.grad(lambda z: f(z, w)[0].sum(), holomorphic=True)(z)
    assert_same(holomorphic, jnp.exp(z) * w, eps=32)


def test_a_function_of_integers_alone_has_no_tangent():
    f = je.elementwise(lambda n: n * 2)
    n = jnp.arange(3)
    value, tangent = jax.jvp(f, (n,), (np.zeros(3, jax.dtypes.float0),))
    np.testing.assert_array_equal(value, [0, 2, 4])
    assert tangent.dtype == jax.dtypes.float0


# ---- What is not differentiated ------------------------------------------------------------------


def test_unneeded_derivatives_are_not_computed(rng):
    x, y = random_array(rng, (4,)), random_array(rng, (4,))
    f = je.elementwise(lambda x, y: jnp.sin(x) * jnp.exp(y))
    (_, backward) = calls(jax.grad(lambda x: f(x, y).sum()), x)
    assert len(backward.outvars) == 1
    assert len(calls(lambda x: jax.jvp(lambda x: f(lax.stop_gradient(x), y), (x,), (x,)), x)) == 1


def test_functions_without_derivative_give_zeros(rng):
    x = random_array(rng, (4,))
    for fun in (jnp.floor, jnp.sign, lambda x: 3.0, lax.stop_gradient):
        f = je.elementwise(fun)
        np.testing.assert_array_equal(jax.grad(lambda x, f=f: f(x).sum())(x), jnp.zeros(4))
        np.testing.assert_array_equal(jax.jvp(f, (x,), (x,))[1], jnp.zeros(4))


def test_unused_results_have_zero_cotangents(rng):
    x, y = random_array(rng, (4,)), random_array(rng, (2, 1))
    f, r = both(lambda x, y: {"a": x * y, "b": jnp.exp(x), "c": x + y})
    for key in "abc":
        mine, theirs = (
            jax.grad(lambda x, y, g=g, key=key: g(x, y)[key].sum(), (0, 1))(x, y) for g in (f, r)
        )
        assert_same(mine, theirs, eps=16)


# ---- Branches and zeros --------------------------------------------------------------------------


def test_a_branch_not_taken_gives_no_nan():
    f = je.elementwise(lambda x: lax.cond(x < 1, lambda x: x, jnp.sqrt, x))
    x = jnp.array([0.0, 4.0])
    for gradient in (jax.grad(lambda x: f(x).sum()), jax.vmap(jax.grad(f))):
        np.testing.assert_array_equal(gradient(x), [1, 0.25])
        np.testing.assert_array_equal(jax.jit(gradient)(x), [1, 0.25])
    assert "if (" in f.cuda_source(x)


def test_where_keeps_the_behaviour_of_jax():
    def fun(x):
        return jnp.where(x < 1, x, jnp.sqrt(x - 1))

    f, r = both(fun)
    x = jnp.array([0.0, 1.0, 5.0])
    mine, theirs = (jax.grad(lambda x, g=g: g(x).sum())(x) for g in (f, r))
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("fun", [jax.nn.relu, jnp.abs, lambda x: jnp.maximum(x, 0.0),
                                 lambda x: jnp.clip(x, -1.0, 1.0)],
                         ids=["relu", "abs", "maximum", "clip"])  # fmt: skip
def test_kinks_are_where_jax_has_them(fun):
    x = jnp.array([-1.0, -0.0, 0.0, 1.0])
    f, r = both(fun)
    mine, theirs = (jax.grad(lambda x, g=g: g(x).sum())(x) for g in (f, r))
    np.testing.assert_array_equal(mine, theirs)


# ---- Counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_one_call_forward_and_one_for_the_whole_backward_pass(case, rng):
    operands = case.operands(rng, SHAPES[: len(case.dtypes)])
    f = je.elementwise(case.fun, name="fun")
    step = jax.value_and_grad(total(f), tuple(range(len(operands))))
    forward, backward = calls(step, *operands)
    assert len(backward.outvars) == len(operands)
    assert forward.params["functor"].name == "fun"
    names = kernels(lowered(step, *operands))
    assert len(names) == 2
    assert len(set(names)) == 2


def test_a_gradient_that_is_the_cotangent_needs_no_call(rng):
    x, y = random_array(rng, (4, 3)), random_array(rng, (3,))
    step = jax.value_and_grad(lambda x, y: je.elementwise(lambda x, y: x + y)(x, y).sum(), (0, 1))
    assert len(calls(step, x, y)) == 1
    by_x, by_y = step(x, y)[1]
    np.testing.assert_array_equal(by_x, np.ones((4, 3)))
    np.testing.assert_array_equal(by_y, [4, 4, 4])


def test_captured_values_are_in_the_same_backward_call(rng):
    x = random_array(rng, (4,))

    def loss(x, s, t):
        return je.elementwise(lambda x: jnp.sin(x * s) + t)(x).sum()

    step = jax.value_and_grad(loss, (0, 1, 2))
    assert len(calls(step, x, 2.0, 3.0)) == 2
    mine, theirs = step(x, 2.0, 3.0), jnp.cos(x * 2)
    assert_same(mine[1], (theirs * 2, (theirs * x).sum(), jnp.float32(4)), eps=16)


@pytest.mark.parametrize(
    ("fun", "kept"),
    [
        (lambda x, y: 2 * x + y, ()),
        (lambda x, y: x - 3 * y + 1, ()),
        (lambda x, y: jnp.sin(x) + y, ("x",)),
        (lambda x, y: x * y, ("x", "y")),
        (lambda x, y: jnp.floor(x) + jnp.tanh(y), ("y",)),
    ],
    ids=["linear", "affine", "one", "bilinear", "no_derivative"],
)
def test_only_what_the_backward_pass_reads_is_kept(fun, kept, rng, capsys):
    operands = {"x": random_array(rng, (4, 3)), "y": random_array(rng, (4, 3))}
    f = je.elementwise(fun)
    for g in (f, jax.jit(f)):
        _, pullback = jax.vjp(g, *operands.values())
        residuals = jax.tree.leaves(pullback)
        assert len(residuals) == len(kept)
        for residual, name in zip(residuals, kept, strict=True):
            np.testing.assert_array_equal(residual, operands[name])
    jax.ad_checkpoint.print_saved_residuals(lambda x, y: f(x, y).sum(), *operands.values())
    assert capsys.readouterr().out.count("f32[4,3]") == len(kept)


def test_a_chain_of_calls_keeps_only_operands(rng):
    f, g = je.elementwise(lambda x: jnp.sin(x)), je.elementwise(lambda x, y: x * y)
    x, y = random_array(rng, (4, 3)), random_array(rng, (3,))
    step = jax.grad(lambda x, y: g(f(x), y).sum(), (0, 1))
    assert len(calls(step, x, y)) == 4
    names = kernels(lowered(step, x, y))
    assert len(names) == 3  # the value itself is not needed
    expected = jax.grad(lambda x, y: (jnp.sin(x) * y).sum(), (0, 1))(x, y)
    assert_same(functools.partial(step, x)(y), expected, eps=16)


def test_a_rule_that_depends_on_the_width_of_types_is_derived_for_both():
    f = je.cuda_functor(
        "x * x", inputs="float x", outputs="float",
        jvp=lambda x, dx: dx * jnp.finfo(jnp.result_type(float)).bits,
    )  # fmt: skip
    x = jnp.float32([1.25])
    for _ in range(2):
        np.testing.assert_array_equal(jax.jvp(f, (x,), (x,))[1], x * 32)
        with jax.enable_x64(True):
            np.testing.assert_array_equal(jax.jvp(f, (x,), (x,))[1], x * 64)


# ---- Rules that a user wrote, at higher order ----------------------------------------------------


def _with_rules(value):
    """Two functions whose rules give another value than they do themselves."""

    @jax.custom_vjp
    def by_vjp(x):
        return jnp.sin(x)

    by_vjp.defvjp(lambda x: (value(x), x), lambda x, ct: (ct * jnp.cos(x) * x,))

    @jax.custom_jvp
    def by_jvp(x):
        return jnp.sin(x)

    by_jvp.defjvp(lambda xs, dots: (value(*xs), dots[0] * jnp.cos(*xs) * xs[0]))
    return by_vjp, by_jvp


@pytest.mark.parametrize("which", [0, 1], ids=["vjp", "jvp"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        *(pytest.param(f, marks=pytest.mark.exhaustive) for f in (jax.checkpoint, jax.jit)),
    ],
    ids=["", "remat", "jit"],
)
def test_values_and_higher_derivatives_are_those_of_the_rules(which, wrap, rng):
    fun = _with_rules(lambda x: 2 * jnp.exp(x))[which]
    x = random_array(rng, (5,))
    f, r = (wrap(g) for g in both(lambda x: fun(x) * x))
    assert_same(f(x), r(x))
    assert_same(jax.vjp(f, x)[0], jax.vjp(r, x)[0])

    def loss(g):
        return lambda x: g(x).sum()

    for derivative in (
        jax.value_and_grad,
        jax.hessian,
        lambda g: lambda x: jax.jvp(jax.value_and_grad(g), (x,), (x,)),
        lambda g: lambda x: jax.linearize(jax.value_and_grad(g), x)[0],
        lambda g: jax.grad(lambda x: jax.grad(g)(x).sum()),
    ):
        assert_same(derivative(loss(f))(x), derivative(loss(r))(x), eps=16)
