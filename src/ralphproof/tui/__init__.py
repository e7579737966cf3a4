"""The terminal board: `ralph watch`. Only here is Textual imported; everything is read through `views/`."""
