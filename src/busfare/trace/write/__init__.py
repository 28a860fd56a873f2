"""Writers of traces."""
