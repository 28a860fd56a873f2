"""Kernel times on another GPU."""
