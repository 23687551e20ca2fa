"""Plan, execute and resume many runs."""
