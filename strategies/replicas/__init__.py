"""Replicas: which one code runs as, how they run at the same time, and where they meet."""
