"""Become another user for good, and prove it. Standard library only; imports nothing of ours.

The launcher's shim imports this file in a Python started with `-I -S`, and calls `become`
between fork and exec, so imports are few. Run as a program, it reads one order (JSON, see
`main`) on stdin, becomes that user and executes a command: this is how the materializer asks
"can the target run this?" without being the target itself.

The order of steps follows OpenSSH's permanently_set_uid and util-linux's setpriv. Every
failure is fatal: a caller that sees NotBecome must end the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from amux.materializer.values import Identity

SIGKILL = 9
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_NO_NEW_PRIVS = 38
PR_GET_NO_NEW_PRIVS = 39
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522
KEYCTL_JOIN_SESSION_KEYRING = 1
KEYCTL_NUMBERS = {
    "x86_64": 250,
    "aarch64": 219,
    "riscv64": 219,
    "loongarch64": 219,
    "ppc64le": 271,
    "s390x": 280,
}
UMASK = 0o077

_libc = ctypes.CDLL(None, use_errno=True)


class NotBecome(Exception):
    """The process is not, or not safely, the target; it must end."""


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def become(identity: Identity, *, death_signal: int = 0, parent: int = 0) -> None:
    """Take on the identity, drop every way back, check it, then arm the parent's death signal.

    `parent` is the pid that must still be the parent once the signal is armed. Raises NotBecome.
    """
    uid, gid, groups = identity.uid, identity.gid, identity.groups
    if uid <= 0 or gid < 0:
        raise NotBecome(f"uid {uid}, gid {gid} is not an identity to isolate a launch with")
    before = (os.getresuid(), os.getresgid())
    # From here to exec the memory is still a copy of the service's: no ptrace, no /proc/self/mem.
    _prctl(PR_SET_DUMPABLE, 0)
    _prctl(PR_SET_KEEPCAPS, 0)
    os.umask(UMASK)
    try:
        os.setgroups(list(groups))
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise NotBecome(f"cannot become uid {uid}, gid {gid}: {error.strerror}") from error
    # The kernel reset it to fs.suid_dumpable with the change of ids.
    _prctl(PR_SET_DUMPABLE, 0)
    _drop_capabilities()
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _leave_keyring()
    check(identity)
    _prove(before, uid, gid)
    if death_signal:
        _prctl(PR_SET_PDEATHSIG, death_signal)
        if parent and os.getppid() != parent:
            raise NotBecome("the process that started this one has ended")


def show() -> None:
    """Give this process its /proc/self back, for one that was executed for the target alone.

    Only for a program whose memory and descriptors hold nothing that the target may not have.
    """
    _prctl(PR_SET_DUMPABLE, 1)


def check(identity: Identity) -> None:
    """Compare every id, the groups, umask, no_new_privs and capabilities with what they must be."""
    uid, gid, groups = identity.uid, identity.gid, identity.groups
    if os.getresuid() != (uid, uid, uid):
        raise NotBecome(f"user ids are {os.getresuid()}, not {uid}")
    if os.getresgid() != (gid, gid, gid):
        raise NotBecome(f"group ids are {os.getresgid()}, not {gid}")
    if set(os.getgroups()) | {gid} != set(groups) | {gid}:
        raise NotBecome(f"groups are {sorted(os.getgroups())}, not {sorted(set(groups))}")
    found = os.umask(UMASK)
    if found != UMASK:
        raise NotBecome(f"umask is {found:03o}, not {UMASK:03o}")
    if _libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise NotBecome("no_new_privs is not set")
    data = (_CapData * 2)()
    if _libc.capget(ctypes.byref(_CapHeader(CAPABILITY_VERSION_3, 0)), data) != 0:
        raise NotBecome("capabilities cannot be read")
    if any(part.effective or part.permitted or part.inheritable for part in data):
        raise NotBecome("capabilities are left")


def _prove(before: tuple[tuple[int, int, int], tuple[int, int, int]], uid: int, gid: int) -> None:
    """Try every way back to root and to the service; each must fail."""
    uids, gids = before
    attempts = [
        *((os.setresuid, (-1, old, -1)) for old in {0, *uids} - {uid}),
        *((os.setresuid, (old, old, old)) for old in {0, *uids} - {uid}),
        *((os.setresgid, (-1, old, -1)) for old in {0, *gids} - {gid}),
        *((os.setresgid, (old, old, old)) for old in {0, *gids} - {gid}),
    ]
    for call, arguments in attempts:
        try:
            call(*arguments)
        except PermissionError:
            continue
        raise NotBecome(f"{call.__name__}{arguments} succeeded: privileges were not dropped")
    try:
        os.setgroups([0])
    except PermissionError:
        return
    raise NotBecome("setgroups succeeded: privileges were not dropped")


def _drop_capabilities() -> None:
    # setresuid clears them only on the way from uid 0; a service may hold them as another user.
    if _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        if code != errno.EINVAL:  # kernels before 4.3 have no ambient set
            raise NotBecome(f"ambient capabilities cannot be cleared: {os.strerror(code)}")
    header = _CapHeader(CAPABILITY_VERSION_3, 0)
    if _libc.capset(ctypes.byref(header), (_CapData * 2)()) != 0:
        raise NotBecome(f"capabilities cannot be dropped: {os.strerror(ctypes.get_errno())}")


def _leave_keyring() -> None:
    """Join a new, empty session keyring: the service's may hold keys, and possession is access."""
    number = KEYCTL_NUMBERS.get(os.uname().machine)
    if number is None:
        return
    if _libc.syscall(number, KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) >= 0:
        return
    code = ctypes.get_errno()
    # Where the call does not exist or is filtered, it is for the target too.
    if code not in {errno.ENOSYS, errno.EPERM, errno.EACCES}:
        raise NotBecome(f"the service's keyring cannot be left: {os.strerror(code)}")


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise NotBecome(f"prctl {option} failed: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Read an order on stdin, become its user, execute its command.

    The order is JSON: `argv`, `environment`, `cwd`, and, to change identity, `identity` with
    `uid`, `gid`, `groups`; `reads` are files that must open first. Ends with 125 and a line on
    stderr where that fails.
    """
    import json  # noqa: PLC0415  # the shim has no use for these
    import types  # noqa: PLC0415

    order = json.load(sys.stdin.buffer)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    step = "identity"
    try:
        if order["identity"] is not None:
            target = types.SimpleNamespace(**order["identity"])
            become(target, death_signal=SIGKILL, parent=order["parent"])  # type: ignore[arg-type]
        step = order["cwd"]
        os.chdir(step)
        for step in order["reads"]:
            os.close(os.open(step, os.O_RDONLY | os.O_NOFOLLOW))
        step = order["argv"][0]
        os.execve(step, order["argv"], order["environment"])  # noqa: S606  # there is no shell
    except NotBecome as error:
        sys.stderr.write(f"amux: {error}\n")
    except OSError as error:
        sys.stderr.write(f"amux: {step}: {error.strerror}\n")
    sys.stderr.flush()
    os._exit(125)


if __name__ == "__main__":
    main()
