"""Drop every privilege of the service for the identity of a target, for good, and prove it.

Standard library only, and few imports: the launcher's shim calls `drop` between fork and exec,
and so do the materializer's workers.

The order of steps follows OpenSSH's permanently_set_uid and util-linux's setpriv. Every
failure is fatal: a caller that sees NotDropped must end the process.
"""

from __future__ import annotations

import ctypes
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

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


class NotDropped(Exception):
    """The process does not have exactly the target's identity and privileges; it must end."""


class Ids:
    """The numbers of an identity: all that the kernel knows of one."""

    __slots__ = ("gid", "groups", "uid")

    def __init__(self, uid: int, gid: int, groups: Iterable[int]) -> None:
        self.uid = uid
        self.gid = gid
        self.groups = tuple(groups)

    @classmethod
    def parse(cls, uid: bytes, gid: bytes, groups: bytes) -> Ids:
        """Read the fields that a worker is sent; commas are between the groups."""
        return cls(int(uid), int(gid), map(int, filter(None, groups.split(b","))))


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def drop(identity: Identity | Ids, *, death_signal: int = 0, parent: int = 0) -> None:
    """Take on the identity, give up every way back, check that, then arm the death signal.

    `parent` is the pid that must still be the parent once the signal is armed. Raises NotDropped.
    """
    uid, gid, groups = identity.uid, identity.gid, identity.groups
    if uid <= 0 or gid < 0:
        raise NotDropped(f"uid {uid}, gid {gid} cannot isolate a launch")
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
        raise NotDropped(f"uid {uid}, gid {gid} cannot be set: {error.strerror}") from error
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
            raise NotDropped("the process that started this one has ended")


def allow_proc_self() -> None:
    """Make this process dumpable again, so that its own /proc/self is open to it.

    Only where its memory and descriptors hold nothing that the target may not have.
    """
    _prctl(PR_SET_DUMPABLE, 1)


def check(identity: Identity | Ids) -> None:
    """Compare every id, the groups, umask, no_new_privs and capabilities with what they must be."""
    _check_ids(identity)
    found = os.umask(UMASK)
    if found != UMASK:
        raise NotDropped(f"umask is {found:03o}, not {UMASK:03o}")
    if _libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise NotDropped("no_new_privs is not set")
    data = (_CapData * 2)()
    if _libc.capget(ctypes.byref(_CapHeader(CAPABILITY_VERSION_3, 0)), data) != 0:
        raise NotDropped("capabilities cannot be read")
    if any(part.effective or part.permitted or part.inheritable for part in data):
        raise NotDropped("capabilities are left")


def _check_ids(identity: Identity | Ids) -> None:
    uid, gid, groups = identity.uid, identity.gid, identity.groups
    if os.getresuid() != (uid, uid, uid):
        raise NotDropped(f"user ids are {os.getresuid()}, not {uid}")
    if os.getresgid() != (gid, gid, gid):
        raise NotDropped(f"group ids are {os.getresgid()}, not {gid}")
    if set(os.getgroups()) | {gid} != set(groups) | {gid}:
        raise NotDropped(f"groups are {sorted(os.getgroups())}, not {sorted(set(groups))}")


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
        raise NotDropped(f"{call.__name__}{arguments} succeeded: privileges were not dropped")
    try:
        os.setgroups([0])
    except PermissionError:
        return
    raise NotDropped("setgroups succeeded: privileges were not dropped")


def _drop_capabilities() -> None:
    # setresuid clears them only on the way from uid 0; a service may hold them as another user.
    if _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        if code != errno.EINVAL:  # kernels before 4.3 have no ambient set
            raise NotDropped(f"ambient capabilities cannot be cleared: {os.strerror(code)}")
    header = _CapHeader(CAPABILITY_VERSION_3, 0)
    if _libc.capset(ctypes.byref(header), (_CapData * 2)()) != 0:
        raise NotDropped(f"capabilities cannot be dropped: {os.strerror(ctypes.get_errno())}")


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
        raise NotDropped(f"the service's keyring cannot be left: {os.strerror(code)}")


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise NotDropped(f"prctl {option} failed: {os.strerror(ctypes.get_errno())}")
