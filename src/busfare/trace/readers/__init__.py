"""The readers, a folder a profiler; each makes a `Trace`."""
