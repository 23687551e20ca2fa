"""What objectives do to texts, before any training: which tokens they mask, and how often."""
