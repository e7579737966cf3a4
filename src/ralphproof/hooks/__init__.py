"""What agents call at their own events. Standard library only, and quick: one of them runs after every tool call.

Input that is malformed never traps an agent; state that is malformed never lets it pass.
"""
