"""One file per rule of weighting, and the mathematics of steps."""
