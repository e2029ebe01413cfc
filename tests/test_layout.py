"""The rooms of the package: imports point one way, no room knows the primitives of another."""

import ast
import pathlib

import pytest

import jax_elementwise

PACKAGE = pathlib.Path(jax_elementwise.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# A room may import those before it.
ROOMS = (
    "_compat",
    "_options",
    "_paths",
    "_processes",
    "_runtime",
    "_host_compiler",
    "_extension",
    "_functor",
    "_codegen",
    "_lowering",
    "_joint_type",
    "_primitive",
    "_arguments",
    "_elementwise",
    "_cuda_functor",
    "__init__",
)


def module_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


TREES = {module_of(path): ast.parse(path.read_text()) for path in FILES}


def imported(tree):
    """The modules of the package that a module imports, wherever in its text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        if node.module.split(".")[0] != "jax_elementwise":
            continue
        base = node.module.split(".")[1:]
        for alias in node.names:
            whole = ".".join([*base, alias.name])
            yield whole if whole in TREES or not base else ".".join(base)


IMPORTS = {module: sorted(set(imported(tree))) for module, tree in TREES.items()}


def room(module):
    return module.split(".")[0]


def test_every_room_has_its_place():
    assert {room(module) for module in TREES} | {"_runtime"} == set(ROOMS)


@pytest.mark.parametrize("module", TREES)
def test_imports_point_one_way(module):
    later = [m for m in IMPORTS[module] if ROOMS.index(room(m)) > ROOMS.index(room(module))]
    assert not later


def circle_from(module, path=()):
    """A circle of imports that a module is part of, as the modules in it."""
    if module in path:
        return path[path.index(module) :]
    for other in IMPORTS.get(module, ()):
        if found := circle_from(other, (*path, module)):
            return found
    return None


@pytest.mark.parametrize("module", TREES)
def test_no_imports_go_in_a_circle(module):
    assert circle_from(module) is None


def test_a_circle_would_be_found(monkeypatch):
    monkeypatch.setitem(IMPORTS, "_functor.jaxprs", ["_compat", "_functor.trace"])
    assert set(circle_from("_functor.trace")) >= {"_functor.trace", "_functor.jaxprs"}


@pytest.mark.parametrize("module", TREES)
def test_no_import_is_for_type_checkers_only(module):
    names = {node.id for node in ast.walk(TREES[module]) if isinstance(node, ast.Name)}
    assert "TYPE_CHECKING" not in names


# ---- Primitives ----------------------------------------------------------------------------------


def strings(tree):
    """The texts in a module, but for its ``__all__``."""
    for node in ast.iter_child_nodes(tree):
        targets = getattr(node, "targets", [])
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value


def primitives(tree):
    """The names of the primitives that a module makes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Primitive"):
            (name,) = node.args
            yield name.value if isinstance(name, ast.Constant) else "cuda_functor"


OWNERS = {name: room(module) for module, tree in TREES.items() for name in primitives(tree)}


def test_primitives_are_found():
    assert {"elementwise", "cuda_functor", "constant_array"} <= set(OWNERS)


@pytest.mark.parametrize("module", TREES)
def test_no_room_knows_the_primitives_of_another_by_name(module):
    known = {name for name in OWNERS if name in strings(TREES[module])}
    assert {OWNERS[name] for name in known} <= {room(module)}
