"""From files, the hub or memory to splits, tokens and batches."""
