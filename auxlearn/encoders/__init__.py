"""The shared encoder: its architectures, loading and checking."""
