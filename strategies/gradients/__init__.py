"""Gradients on their way: buckets, their reduction, and that all do alike."""
