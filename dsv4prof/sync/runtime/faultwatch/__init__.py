"""Writes the fault record of a running rank: operators, kernels, graph replays, buffers, and how far the device is.

`watch` is the door. Nothing here imports torch when it is imported.
"""
