"""The fleet: many loops on many machines, that share a git remote and nothing else."""
