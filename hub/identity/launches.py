"""Leases of running launches and their `agent` credentials: one file each in `identity/launches/`.

Only the Hub writes here. A lease outlives a restart of the Hub, is renewed while its run
lives, and is deleted with the run, by reconciliation, or when its time is over.

Its time is that of a clock which nobody sets and which stands still while the machine sleeps.
Such a clock begins anew with each boot; only then is the rest of a lease taken from Unix time.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub.atomicfile import replace_file, sync_folder
from amux.hub.errors import IdentityRefused
from amux.hub.identity.records import Record, number, optional_text, text

if TYPE_CHECKING:
    from collections.abc import Callable

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
LEASE_SECONDS: Final = 24 * 60 * 60
_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One lease: who opened it, whose it is, what was frozen, and the credential's digest."""

    id: str
    runtime: str
    principal: str | None
    binding: str
    credential: str
    digest: str = field(repr=False)
    expires: int
    """The end in Unix time, as far as that can be told."""
    ends: float
    """The end by the clock of the boot `boot`."""
    boot: str


class LaunchBook:
    """All leases, in memory and on disk; safe for many threads."""

    def __init__(
        self,
        folder: Path,
        *,
        wall: Callable[[], float] = time.time,
        awake: Callable[[], float] = time.monotonic,
        boot: str | None = None,
    ) -> None:
        self._wall = wall
        self._awake = awake
        self._boot = BOOT_ID.read_text().strip() if boot is None else boot
        self._folder = folder
        self._lock = threading.Lock()
        self._by_id: dict[str, Launch] = {}
        self._by_credential: dict[str, Launch] = {}

    def load(self) -> int:
        """Read the leases of an earlier Hub, drop those that are over; return damaged files."""
        damaged = 0
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(self._folder.iterdir()):
            if path.suffix != ".json" or path.name.startswith("."):
                path.unlink(missing_ok=True)
                continue
            try:
                launch = self._resumed(_launch(json.loads(path.read_bytes())))
            except (OSError, ValueError, IdentityRefused):
                damaged += 1
                continue
            if self.over(launch):
                path.unlink(missing_ok=True)
            else:
                self._keep(launch)
        return damaged

    def over(self, launch: Launch) -> bool:
        """Say whether the lease's time is over."""
        return launch.ends <= self._awake()

    def renewed(self, launch: Launch) -> Launch:
        """Return the lease with a full term from now."""
        return self._with_term(launch, LEASE_SECONDS)

    def _with_term(self, launch: Launch, seconds: float) -> Launch:
        return replace(
            launch,
            expires=int(self._wall() + seconds),
            ends=self._awake() + seconds,
            boot=self._boot,
        )

    def _resumed(self, launch: Launch) -> Launch:
        """Return a lease that was read from its file, by the clock of this boot."""
        left = launch.ends - self._awake()
        if launch.boot != self._boot:
            left = launch.expires - self._wall()
        return self._with_term(launch, min(left, LEASE_SECONDS))

    def find(self, launch_id: str) -> Launch | None:
        """Return the lease of this launch, also when its time is over."""
        return self._by_id.get(launch_id)

    def count(self, runtime: str) -> int:
        """Return how many leases this runtime credential has."""
        return sum(launch.runtime == runtime for launch in list(self._by_id.values()))

    def by_credential(self, credential_id: str) -> Launch | None:
        """Return the lease whose current `agent` credential has this id."""
        return self._by_credential.get(credential_id)

    def save(self, launch: Launch) -> None:
        """Make or replace a lease durably; the older credential ends. Raises OSError."""
        with self._lock:
            # A restored `identity/` may lack it.
            self._folder.mkdir(mode=0o700, exist_ok=True)
            replace_file(self._path(launch.id), json.dumps(_record(launch)).encode())
            self._keep(launch)

    def end(self, launch_id: str) -> bool:
        """Delete a lease; return False when there was none. Raises OSError."""
        with self._lock:
            launch = self._by_id.get(launch_id)
            if launch is None:
                return False
            # The file first: a lease that only memory forgot would come back with a restart.
            self._path(launch_id).unlink(missing_ok=True)
            sync_folder(self._folder)
            del self._by_id[launch_id]
            self._by_credential.pop(launch.credential, None)
            return True

    def sweep(self) -> int:
        """End every lease whose time is over; return how many."""
        over = [launch.id for launch in list(self._by_id.values()) if self.over(launch)]
        return sum(self.end(launch_id) for launch_id in over)

    def _keep(self, launch: Launch) -> None:
        old = self._by_id.get(launch.id)
        if old is not None and old.credential != launch.credential:
            self._by_credential.pop(old.credential, None)
        self._by_id[launch.id] = launch
        self._by_credential[launch.credential] = launch

    def _path(self, launch_id: str) -> Path:
        return self._folder / (hashlib.sha256(launch_id.encode()).hexdigest()[:32] + ".json")


def _record(launch: Launch) -> Record:
    return {
        "schema": _SCHEMA,
        "launch": launch.id,
        "runtime": launch.runtime,
        "principal": launch.principal,
        "binding": launch.binding,
        "credential": launch.credential,
        "sha256": launch.digest,
        "expires": launch.expires,
        "ends": launch.ends,
        "boot": launch.boot,
    }


def _launch(record: object) -> Launch:
    if not isinstance(record, dict) or record.get("schema") != _SCHEMA:
        raise IdentityRefused("not a lease of a known schema")
    return Launch(
        id=text(record, "launch"),
        runtime=text(record, "runtime"),
        principal=optional_text(record, "principal"),
        binding=text(record, "binding"),
        credential=text(record, "credential"),
        digest=text(record, "sha256"),
        expires=number(record, "expires"),
        ends=_seconds(record, "ends"),
        boot=optional_text(record, "boot") or "",
    )


def _seconds(record: Record, key: str) -> float:
    value = record.get(key, 0.0)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise IdentityRefused(f"a record has no number {key!r}")
    return float(value)
