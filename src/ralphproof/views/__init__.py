"""What is seen of runs and tasks: one read model for `status`, `watch` and `serve`. It only reads."""
