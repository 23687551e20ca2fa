"""An auxiliary task, a loss of the primary task and a weighting for auxlearn."""
