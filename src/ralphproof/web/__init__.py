"""The web door: a page, an API and events about a project's runs. It looks on; only `--control` lets it steer."""
