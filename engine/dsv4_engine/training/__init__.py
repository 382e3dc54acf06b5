"""Trains small DSV4 models: the architecture of `dsv4_engine.model`, whole sequences at once and differentiable."""
