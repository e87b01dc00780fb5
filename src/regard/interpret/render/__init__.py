"""A trace as people read it: in the terminal, and as one page."""
