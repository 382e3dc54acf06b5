"""Showing a trace: the Perfetto UI on the loopback, opened on a slice, and the TensorBoard plugin."""
