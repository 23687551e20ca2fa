"""What a run leaves: folder, record, predictions, plots, tables, model card, loggers."""
