"""Frozen facts that flow through everything: standard library and msgspec only."""
