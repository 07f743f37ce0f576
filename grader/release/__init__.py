"""The starter, the students' release, and its update."""
