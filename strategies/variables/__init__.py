"""Variables: by name, in copies, and where their values live."""
