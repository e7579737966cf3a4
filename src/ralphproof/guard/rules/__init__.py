"""The rules, by kind of harm. Each file has `RULES`, and `found`, which goes through one command."""
