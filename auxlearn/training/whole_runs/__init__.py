"""Rules that compare whole runs, such as ``meta``: which they train, and which one is taken."""
