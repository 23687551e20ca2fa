"""Methods over seeds and data sets: statistics, tables, plots, ensembles."""
