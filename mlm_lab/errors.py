"""Mistakes that the user can mend, told in a few lines.

Everything that a user can cause (a config value, a file, a corpus) is raised as `UserError`; `__main__` prints it on stderr and exits
with code 2. Anything else that reaches `__main__` is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the operating system says where there is no more room, or no more allowed."""
LISTED = 8
"""Mistakes of a kind that are listed one by one: an error is a few lines."""


DIVERGED, OUTSIDE, FAULT = "diverged", "outside", "fault"
"""Why a run, or a fine-tuning, came to no number: what it computed was not finite; something outside of that (a full disk, memory, a
missing file, a process that was ended); an error that nobody foresaw. The first is an outcome, the second is none (traps.md 33)."""


class UserError(Exception):
    """What is wrong, where, what was given, what is allowed, what to do. Only what applies is printed."""

    exit_code = 2
    failure = OUTSIDE

    def __init__(self, problem: str, *, where: str | None = None, given: object = None, allowed: str | None = None, fix: str | None = None):
        self.problem, self.where, self.given, self.allowed, self.fix = problem, where, given, allowed, fix
        lines = [problem]
        lines += [f"  where:   {where}"] if where is not None else []
        lines += [f"  given:   {given}"] if given is not None else []
        lines += [f"  allowed: {allowed}"] if allowed is not None else []
        lines += [f"  fix:     {fix}"] if fix is not None else []
        super().__init__("\n".join(lines))


class Diverged(UserError):
    """The training came to numbers that are not finite."""

    failure = DIVERGED


class Claimed(UserError):
    """Another process works on the same run. A scheduler may try again later (the code is EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75


class Problem(NamedTuple):
    """One config value that is out of range. `field` is relative to the dataclass that found it; `config` puts the path before it."""

    field: str
    given: object
    allowed: str


class InvalidFields(UserError):
    """Values of one config dataclass that are out of range, all at once."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("\n".join(f"{p.field}={p.given!r}: must be {p.allowed}" for p in problems))


def require(*checks: tuple[str, object, bool, str]) -> None:
    """Check a config dataclass in its `__post_init__`: each check is (field, value given, whether it holds, what is allowed).

    Raises `InvalidFields` with every check that does not hold.
    """
    problems = [Problem(field, given, allowed) for field, given, holds, allowed in checks if not holds]
    if problems:
        raise InvalidFields(problems)


def refuse(problem: str, mistakes: list[str], fix: str | None = None) -> None:
    """Raise all of the mistakes in one `UserError`, if there are any."""
    if not mistakes:
        return
    rest = [f"... and {len(mistakes) - LISTED} more"] if len(mistakes) > LISTED else []
    raise UserError("\n  ".join([f"{problem}:", *mistakes[:LISTED], *rest]), fix=fix)


class Interrupted(BaseException):
    """The run was asked to stop, and what it had done is saved. exit_code: 130 for Ctrl-C, 143 for SIGTERM.

    No Exception, as KeyboardInterrupt is none: what catches those that a library may raise must not catch a wish of the user's.
    """

    def __init__(self, exit_code: int):
        self.exit_code = exit_code
        super().__init__(f"interrupted ({'Ctrl-C' if exit_code == 130 else 'SIGTERM'})")
