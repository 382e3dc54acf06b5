"""Automatic fixes: only where the result is the same whatever the values are."""
