"""Databases of AMD's profilers."""
