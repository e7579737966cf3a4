"""ralphproof runs a coding agent on a repository until a machine can show that the work is done."""

__version__ = "0.1.0"
