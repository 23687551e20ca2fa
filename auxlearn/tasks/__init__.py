"""One file per auxiliary task."""
