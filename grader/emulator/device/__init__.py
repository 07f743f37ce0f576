"""The emulated GPU: its process, its state, what it records of launches."""
