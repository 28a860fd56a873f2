"""Files of nvprof."""
