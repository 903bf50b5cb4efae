"""What a shim is told to run, and how that travels. Standard library only: the shim imports it."""

from __future__ import annotations

INHERIT, PIPES, PTY = "inherit", "pipes", "pty"


class Specification:
    """What to run. Every text is bytes, as the kernel wants it."""

    __slots__ = (
        "argv",
        "cwd",
        "environment",
        "files",
        "group",
        "identity",
        "ignored",
        "mark",
        "parent",
        "stdio",
    )

    def __init__(  # noqa: PLR0913  # one field each, and no dataclasses module here
        self,
        *,
        argv: list[bytes],
        environment: list[bytes],
        cwd: bytes,
        stdio: str,
        parent: int,
        ignored: list[int],
        files: int,
        group: bytes,
        mark: int,
        identity: Identity | None,
    ) -> None:
        self.argv = argv
        self.environment = environment
        self.cwd = cwd
        self.stdio = stdio
        self.parent = parent
        self.ignored = ignored
        self.files = files
        """The soft limit of open files that the supervisor was started with; 0 leaves it."""
        self.group = group
        """The folder of the run's control group; empty where it has none."""
        self.mark = mark
        """The run's mark among the limits (`launcher.marks`); 0 where it has none."""
        self.identity = identity


class Identity:
    """The ids of `amux.materializer.values.Identity`, without its imports."""

    __slots__ = ("gid", "groups", "uid")

    def __init__(self, uid: int, gid: int, groups: tuple[int, ...]) -> None:
        self.uid = uid
        self.gid = gid
        self.groups = groups


def encode(specification: Specification) -> bytes:
    """Return the specification as the control socket carries it: a length, then NUL-ended fields.

    No argument, environment entry or path can hold a NUL.
    """
    who = specification.identity
    groups = ",".join(map(str, who.groups)) if who else ""
    fields = [
        specification.stdio.encode(),
        b"%d" % specification.parent,
        ",".join(map(str, specification.ignored)).encode(),
        b"%d" % specification.files,
        specification.group,
        b"%d" % specification.mark,
        specification.cwd,
        f"{who.uid}:{who.gid}:{groups}".encode() if who else b"",
        b"%d" % len(specification.argv),
        *specification.argv,
        *specification.environment,
    ]
    body = b"".join(field + b"\0" for field in fields)
    return b"%d\n" % len(body) + body


def decode(body: bytes) -> Specification:
    """Return the specification that `encode` wrote, without its length."""
    stdio, parent, ignored, files, group, mark, cwd, who, count, *rest = body.split(b"\0")[:-1]
    identity = None
    if who:
        uid, gid, groups = who.split(b":")
        numbers = tuple(int(group) for group in groups.split(b",") if group)
        identity = Identity(int(uid), int(gid), numbers)
    return Specification(
        argv=rest[: int(count)],
        environment=rest[int(count) :],
        cwd=cwd,
        stdio=stdio.decode(),
        parent=int(parent),
        ignored=[int(number) for number in ignored.split(b",") if number],
        files=int(files),
        group=group,
        mark=int(mark),
        identity=identity,
    )
