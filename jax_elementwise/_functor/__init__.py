"""The functor: what one element computes, as a jaxpr over scalars, and what is made of it."""
