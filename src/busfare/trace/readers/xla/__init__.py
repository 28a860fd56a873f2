"""Profiles of JAX and TensorFlow: XSpace files (`.xplane.pb`), and the time lines made of them."""
