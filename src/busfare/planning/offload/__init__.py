"""Data that lives on the host and is brought to the GPU when it is needed: weights, optimizer state, KV caches."""
