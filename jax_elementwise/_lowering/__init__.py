"""From a call of the primitive to StableHLO: a custom call on CUDA, XLA's operations elsewhere."""
