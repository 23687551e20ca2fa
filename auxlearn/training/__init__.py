"""One run, from settings to a finished folder; pretraining."""
