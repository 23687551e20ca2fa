"""The built-in data set ``pydocs``, made of the docstrings of installed libraries.

:mod:`~auxlearn.data.pydocs.docstrings` extracts prose from docstrings, and
:mod:`~auxlearn.data.pydocs.build` selects texts and builds the data set.
"""
