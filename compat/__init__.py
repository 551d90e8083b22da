"""Other libraries' names for the parts of this one."""
