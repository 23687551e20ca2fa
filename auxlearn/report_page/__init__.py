"""``report.html``: runs and sweeps on one page that needs no network."""
