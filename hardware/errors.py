"""The error that a person can act on."""

from __future__ import annotations


class InputError(ValueError):
    """Something given to us is wrong; the command line prints it and exits with 2.

    Parameters
    ----------
    where : the file, episode, field or option that is wrong.
    problem : what is wrong with it, with the value found.
    remedy : what to do about it.
    """

    def __init__(self, where: object, problem: str, remedy: str = "") -> None:
        self.where, self.problem, self.remedy = str(where), problem, remedy
        super().__init__(f"{where}: {problem}" + (f" - {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        """So that an error of a worker process arrives as itself."""
        return type(self), (self.where, self.problem, self.remedy)
