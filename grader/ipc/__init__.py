"""How processes of the kit talk: frames over a socket, and what a child prints."""
