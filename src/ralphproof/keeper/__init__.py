"""The process that owns turns: it starts one program at a time, drains it, times it, ends its whole tree.

`client` is the harness's side. All other files are the keeper process itself: built-in modules only, so that it starts
in milliseconds. A turn survives its harness; a file per turn (`journal`) is lock, journal and result.
"""
