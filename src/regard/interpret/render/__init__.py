"""Render a trace in the terminal, as an HTML page, and as figures."""
