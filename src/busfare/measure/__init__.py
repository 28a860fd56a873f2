"""Measurements on a real GPU, or on a virtual one that plays a node of the catalogue. Imported by `cli` alone."""
