"""From a scalar jaxpr to the text of a CUDA kernel."""
