"""What checks of several stages share, and what does not fit into a stage's own file."""
