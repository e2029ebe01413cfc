"""Functors in CUDA C++: what users write, as operations of a functor."""
