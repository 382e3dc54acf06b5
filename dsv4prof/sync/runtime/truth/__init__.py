"""The truth harness: which calls make the host wait, measured on the device at hand.

A kernel of known length is queued first. A call that returns while it still runs did not wait; one that returns after
its end did. `probe` decides this against a small protocol, `torch_probe` is that protocol on CUDA and HIP, `child` runs
cases in a process of its own, and `campaign` goes on where a case takes such a process down.
"""
