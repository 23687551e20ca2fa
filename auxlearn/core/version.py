"""The version of the package, which every module may read without importing the package."""

__version__ = "0.1.0"
