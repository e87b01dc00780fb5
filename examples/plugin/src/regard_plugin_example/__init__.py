"""Example of a package that extends regard through entry points; see pyproject.toml."""
