"""What checked launches found, as sentences for students."""
