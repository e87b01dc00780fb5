"""What the figures of the labs are made of: lines, bars, dots, maps and matrices, drawn by one hand."""
