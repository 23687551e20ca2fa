"""Which tokens tasks mask and substitute."""
