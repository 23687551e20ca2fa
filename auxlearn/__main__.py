"""``python -m auxlearn`` is the command ``auxlearn``."""

from auxlearn.cli import main

main()
