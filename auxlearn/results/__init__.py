"""What a run shows and leaves: console, folder, record, predictions, plots, tables, loggers."""
