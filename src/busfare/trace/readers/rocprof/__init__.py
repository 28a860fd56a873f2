"""Reads what AMD's profilers write: databases, JSON, CSV and Perfetto files of rocprofv3, of rocprof before it, and RPD."""
