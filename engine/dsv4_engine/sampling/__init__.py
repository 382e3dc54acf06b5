"""From logits to tokens."""

from dsv4_engine.sampling.greedy import greedy

__all__ = ["greedy"]
