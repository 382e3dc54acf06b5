"""Perfetto's own trace format: ranks written to it, files of it read, and untouched rank files packed for it."""
