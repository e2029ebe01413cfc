"""The C++ of each primitive. Importing this package registers its rules (``registry.py``)."""

from jax_elementwise._codegen.rules import arrays as arrays
from jax_elementwise._codegen.rules import control as control
from jax_elementwise._codegen.rules import indexing as indexing
from jax_elementwise._codegen.rules import operators as operators
from jax_elementwise._codegen.rules import parametric as parametric
