"""Is the engine right? `python -m dsv4_engine.check DIR` compares it with the numbers of other implementations."""
