"""dsv4prof: find out why a DeepSeek-V4 MTP serving step is slower than it should be, and prove it."""

__version__ = "0.1.0"
