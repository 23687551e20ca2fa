"""Checks of plug-ins, for an author's tests and for ``auxlearn check``.

In a test of a task, a loss of the primary task, or a weighting::

    from auxlearn.testing import check_task

    def test_my_task():
        check_task(MyTask)
"""

from auxlearn.core.lazy import names_of_stub

__all__, __getattr__, __dir__ = names_of_stub(__name__, __file__)
