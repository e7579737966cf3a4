"""The process that owns turns: it starts one program at a time, drains it, times it, ends its whole tree.

`client` is the harness's side, `follow` is for whoever only looks on. What `serve` imports is the keeper process: only
built-in modules, so that it starts in milliseconds, and all of it at once, since what is on disk may be replaced while
it runs. A turn survives its harness; a file per turn (`journal`) is lock, journal and result.
"""
