"""Pictures by one hand: the palette, the style, names at the ends of lines, and files that are whole or not there."""
