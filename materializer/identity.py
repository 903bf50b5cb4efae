"""Resolve an account of this machine to a complete identity, or say why no launch may use it."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import stat
import threading
import time
from pathlib import Path
from typing import Final

from amux.materializer.errors import CapabilityMissing, IdentityRefused
from amux.materializer.values import Identity

DAY: Final = 86_400
NO_LOGIN_SHELLS: Final = frozenset({"", "nologin", "false", "sync", "halt", "shutdown"})
ROOT_LIKE_GROUPS: Final = frozenset({"disk", "docker", "kmem", "libvirt", "lxd", "root"})
FALLBACK_SHELL: Final = "/bin/sh"
_SHADOW: Final = threading.Lock()

# What an isolated launch uses: files handed over, removed again, the identity, and signals.
NEEDED_CAPABILITIES: Final = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
}


class _Shadow(ctypes.Structure):
    """`struct spwd` of shadow.h; Python's own `spwd` is gone from 3.13."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("password", ctypes.c_char_p),
        ("changed", ctypes.c_long),
        ("minimum", ctypes.c_long),
        ("maximum", ctypes.c_long),
        ("warn", ctypes.c_long),
        ("inactive", ctypes.c_long),
        ("expires", ctypes.c_long),
        ("flag", ctypes.c_ulong),
    )


def resolve(name: str) -> Identity:
    """Return the complete identity of the account `name`.

    Raises CapabilityMissing where this process may not change identity at all, and
    IdentityRefused for an account that is missing, expired, privileged, the caller's own, or
    has no home of its own.
    """
    require_capabilities()
    account = _account(name)
    if account.pw_uid == 0:
        raise IdentityRefused(f"user {name} is root: a launch as root is not isolated")
    if account.pw_uid in {os.getuid(), os.geteuid()}:
        raise IdentityRefused(
            f"user {name} is the account that amux runs as: name another, or leave --user out"
        )
    if _expired(name):
        raise IdentityRefused(f"the account {name} has expired: renew it with chage -E")
    try:
        groups = os.getgrouplist(name, account.pw_gid)
    except OSError as error:
        raise IdentityRefused(
            f"the groups of {name} cannot be read from the system: {error.strerror}"
        ) from error
    _check_home(name, account)
    shell = Path(account.pw_shell).name
    return Identity(
        user=name,
        uid=account.pw_uid,
        gid=account.pw_gid,
        groups=tuple(dict.fromkeys((account.pw_gid, *groups))),
        home=account.pw_dir,
        shell=FALLBACK_SHELL if shell in NO_LOGIN_SHELLS else account.pw_shell,
    )


def remarks(identity: Identity) -> tuple[str, ...]:
    """Say what an operator should know of the account, though it does not forbid a launch."""
    found = []
    account = pwd.getpwnam(identity.user)
    if Path(account.pw_shell).name in NO_LOGIN_SHELLS:
        found.append(
            f"{identity.user} has no login shell ({account.pw_shell or 'none'}): "
            f"the agent's commands run in {identity.shell}"
        )
    powerful = _powerful_groups(identity)
    if powerful:
        found.append(
            f"{identity.user} is in {', '.join(powerful)}, whose members can become root on most "
            "machines: such an account isolates nothing"
        )
    mode = stat.S_IMODE(Path(identity.home).stat().st_mode)
    if mode & 0o022:
        found.append(f"the home {identity.home} is writable for others (mode {mode:04o})")
    return tuple(found)


def _powerful_groups(identity: Identity) -> list[str]:
    """Name the account's groups that own a daemon's socket or a raw disk."""
    names = []
    for gid in identity.groups:
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:  # a directory service may know a number only
            continue
    return sorted(ROOT_LIKE_GROUPS.intersection(names))


def require_capabilities() -> None:
    """Raise CapabilityMissing unless this process holds all that an isolated launch needs."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
            break
    else:
        raise CapabilityMissing("the kernel does not say which capabilities this process has")
    missing = [name for name, bit in NEEDED_CAPABILITIES.items() if not held >> bit & 1]
    if missing:
        raise CapabilityMissing(
            f"--user needs root, or a service with the capabilities {', '.join(missing)}"
        )


def _account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except (KeyError, ValueError) as error:
        raise IdentityRefused(f"there is no user {name!r} on this machine") from error


def _expired(name: str) -> bool:
    """Read the account's expiry date through the system's own sources; False where it has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.getspnam.restype = ctypes.POINTER(_Shadow)
    with _SHADOW:  # the answer lies in static storage
        entry = libc.getspnam(name.encode())
        if not entry:  # a directory service that keeps no shadow entry
            return False
        expires = int(entry.contents.expires)
    return 0 < expires <= int(time.time()) // DAY


def _check_home(name: str, account: pwd.struct_passwd) -> None:
    home = account.pw_dir
    if not home.startswith("/"):
        raise IdentityRefused(f"user {name} has no home folder")
    try:
        found = Path(home).stat()
    except OSError as error:
        raise IdentityRefused(
            f"the home {home} of {name} cannot be used: {error.strerror}; make it first"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise IdentityRefused(f"the home {home} of {name} is not a folder")
    if found.st_uid != account.pw_uid:
        raise IdentityRefused(
            f"the home {home} of {name} belongs to uid {found.st_uid}: give it to {name}, "
            "or choose an account that has a home of its own"
        )
