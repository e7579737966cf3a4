"""A model that says what a script tells it to, in the words of four APIs."""
