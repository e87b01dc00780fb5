"""Charts of the labs: lines, bars and dots, and grids (matrices, heat maps, contour maps)."""
