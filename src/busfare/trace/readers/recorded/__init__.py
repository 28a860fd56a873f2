"""Recordings of busfare's own."""
