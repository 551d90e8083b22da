"""Devices, the arrays on them, and how arrays of several devices become one."""
