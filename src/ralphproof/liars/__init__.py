"""Agents that lie, and the small real projects that they lie in: what the program believes of them is its measure."""
