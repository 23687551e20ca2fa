"""The built-in data set ``pydocs``, made of the docstrings of installed libraries."""
