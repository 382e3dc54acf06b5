"""After a death or a hang: which work was in flight, on which memory, and what the messages mean.

`ring` and `reader` are the crash-safe file that a rank writes while it runs, `messages` and its tables what drivers,
runtimes and servers print, `steplog` and `hang` what a server's own logs tell. `diagnosis` puts them together. Nothing
here needs torch.
"""
