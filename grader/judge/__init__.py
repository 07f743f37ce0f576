"""How values are judged: tolerances, comparison, and the patterns of wrong values."""
