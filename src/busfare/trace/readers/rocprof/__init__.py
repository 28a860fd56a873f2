"""Reads what AMD's profilers write: databases, JSON and CSV files of rocprofv3, of rocprof before it, and RPD."""
