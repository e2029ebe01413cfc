import sys

sys.path.insert(0, "benchmarks")
from jax_elementwise._codegen import kernel

if sys.argv[1] == "full":
    kernel.has_long_loop = lambda j: False
import loops

loops.main(sys.argv[2:])
