"""The handouts' figures, drawn by code; `draw.py` beside this package writes the SVG files."""
