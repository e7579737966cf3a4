"""The command guard: what an unattended agent is about to do, and why it had better not."""
