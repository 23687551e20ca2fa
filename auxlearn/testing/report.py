"""Results of the checks of a plug-in."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: What was checked.
        passed: Whether it holds; ``None`` for a measurement, which cannot fail.
        detail: What was found, one line.
    """

    name: str
    passed: bool | None
    detail: str = ""


@dataclass
class Report:
    """The results of all checks of a plug-in.

    Attributes:
        plugin: Kind and name of the plug-in.
        checks: Results in the order in which they were made.
    """

    plugin: str
    checks: list[Check] = field(default_factory=list)

    @property
    def failed(self) -> list[Check]:
        """The checks that do not hold."""
        return [check for check in self.checks if check.passed is False]

    def require(self) -> Report:
        """Return this report if every check holds.

        Raises:
            AssertionError: One does not; the message lists those that do not.
        """
        if self.failed:
            lines = [f"{check.name}: {check.detail}" for check in self.failed]
            raise AssertionError("\n".join([f"{self.plugin} does not pass:", *lines]))
        return self
