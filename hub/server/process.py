"""The life of a Hub process: claim the root, open the sockets, serve, stop cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub import config, logs, mounts
from amux.hub.enrolment import enrol_local
from amux.hub.errors import AlreadyRunning, HomeRefused
from amux.hub.guard import Guarding
from amux.hub.holder import Holder, process_start, read_holder
from amux.hub.home import agent_socket, private_socket
from amux.hub.identity import open_identity
from amux.hub.leftovers import remove_leftovers
from amux.hub.local import STOP_SECONDS, end_hub
from amux.hub.placement import SENTENCES, Place, Placed
from amux.hub.residence import settle
from amux.hub.server.activation import check_handed
from amux.hub.server.app import VERSION, HubApp
from amux.hub.server.body import BodyReader
from amux.hub.server.doors import (
    close_doors,
    listening,
    open_far_doors,
    private_door,
    refuse_managed,
)
from amux.hub.server.listener import Listener
from amux.hub.server.root import claim
from amux.hub.server.turns import Shares, Workers
from amux.hub.service import HubService
from amux.hub.stopmark import STOPPED, clear_mark, is_marked
from amux.hub.store import MemoryStore

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping

    from amux.hub.config import Settings
    from amux.hub.guard import Finding
    from amux.hub.server.doors import Opened
    from amux.hub.server.root import Root

THREADS: Final = 24
# Searches keep the interpreter busy; the loop that answers everyone gets it back sooner.
SWITCH_SECONDS: Final = 0.0005
SWEEP_SECONDS: Final = 600.0
WATCH_SECONDS: Final = 10.0
_WANTED_FILES: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a Hub is started with: also where it lives, and a socket that it was handed.

    One that starts `unasked` serves no home whose Hub was stopped on purpose.
    """

    home: Path
    environ: Mapping[str, str]
    place: Place
    unasked: bool = False
    handed: socket.socket | None = None


def serve(start: Start, *, ready: Callable[[], None]) -> None:
    """Serve a home until SIGTERM or SIGINT; `ready` is called once calls are answered.

    Raises HomeRefused, ConfigRefused, IdentityRefused, AlreadyRunning, and StorageFailed
    for a file system that cannot be relied on, before that.
    """
    home = start.home
    if start.handed is not None:
        check_handed(start.handed, private_socket(home))
    else:
        refuse_managed(private_socket(home))
    root = _claim(start)
    try:
        settings = config.load(home)
        for folder in (home, home / "memory"):
            mounts.require_local(folder.resolve(), allow=settings.memory_allow_network_mount)
        remove_leftovers(home)
        enrol_local(home)
        with _held(home) as opened:
            _serve(start, opened, root, settings=settings, ready=ready)
    finally:
        root.release()


def _claim(start: Start) -> Root:
    """Take the root; a Hub that a launch started gives way to the service manager's."""
    try:
        return claim(start.home)
    except AlreadyRunning:
        holder = read_holder(start.home)
        if start.handed is None or holder is None or not holder.on_demand:
            raise
        end_hub(holder, seconds=STOP_SECONDS)
        return claim(start.home)


@contextlib.contextmanager
def _held(home: Path) -> Iterator[int]:
    """Hold the home open: all that is served is reached through it, wherever it is moved to."""
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise HomeRefused(f"cannot open {home}: {error.strerror}") from error
    try:
        yield folder
    finally:
        os.close(folder)


def _serve(
    start: Start, folder: int, root: Root, *, settings: Settings, ready: Callable[[], None]
) -> None:
    place = start.place
    here = Path(f"/proc/self/fd/{folder}")
    registry = open_identity(here)
    damaged = registry.launches.load()
    # Read before anybody calls: later only what changes is read, on the loop that all share.
    registry.principals.current()
    registry.credentials.current()
    store = MemoryStore(here / "memory", guard=_guarding(settings), warn=_warn)
    store.sweep()
    service = HubService(here, settings=settings, registry=registry)
    _raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    doors: list[Opened] = []
    try:
        # The private socket comes last: whoever reaches it finds everything else in place.
        open_far_doors(doors, start.home, start.environ, settings)
        residence = settle(here).text
        if not start.unasked:
            clear_mark(here)
        root.announce(_holder(start, settings, doors, residence))
        if start.unasked and is_marked(here):
            raise HomeRefused(STOPPED)
        doors.append(private_door(start.handed, private_socket(here), residence))

        def begun() -> None:
            logs.event(
                "start",
                version=VERSION,
                pid=os.getpid(),
                damaged_leases=damaged,
                placed=place.placed.value,
                unasked=start.unasked,
            )
            if place.placed is Placed.SHARED:
                logs.event(SENTENCES[Placed.SHARED], level=logging.WARNING)
            ready()

        asyncio.run(_run(service, store, doors, folder, begun))
        logs.event("stop", pid=os.getpid())
    finally:
        close_doors(doors)


async def _run(
    service: HubService,
    store: MemoryStore,
    doors: list[Opened],
    folder: int,
    begun: Callable[[], None],
) -> None:
    loop = asyncio.get_running_loop()
    bodies = BodyReader()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # What nohup, or a shell's background, had ignored stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopping.set)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="hub") as executor:
        workers, shares = Workers(executor), Shares()
        listeners = []
        for opened in doors:
            app = HubApp(
                service, store, door=opened.door, workers=workers, bodies=bodies, shares=shares
            )
            asgi = app.asgi(hosts=opened.hosts, home=opened.home)
            listeners.append(Listener(asgi, opened.bound, tls=opened.tls))
        async with asyncio.TaskGroup() as group:
            for listener in listeners:
                group.create_task(listener.serve())
            sweeping = group.create_task(_sweep(service))
            watching = group.create_task(_watch(folder, stopping))
            begun()
            await stopping.wait()
            logs.event("stopping")
            bodies.stop()
            workers.stop()
            sweeping.cancel()
            watching.cancel()
            for listener in listeners:
                listener.stop()


async def _watch(folder: int, stopping: asyncio.Event) -> None:
    """Stop a Hub whose home was deleted: nobody can reach it any more."""
    while not stopping.is_set():
        await asyncio.sleep(WATCH_SECONDS)
        if os.fstat(folder).st_nlink == 0:
            logs.event("home deleted", level=logging.WARNING)
            stopping.set()


async def _sweep(service: HubService) -> None:
    """End leases whose time is over, now and then."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            ended = await asyncio.to_thread(service.leasing.sweep)
        except OSError as error:
            logs.event("leases not swept", level=logging.ERROR, errno=error.errno)
            continue
        if ended:
            logs.event("leases over", count=ended)


def _holder(start: Start, settings: Settings, doors: list[Opened], residence: str) -> Holder:
    return Holder(
        pid=os.getpid(),
        start=process_start(os.getpid()) or 0,
        version=VERSION,
        socket=str(private_socket(start.home)),
        agent_socket=str(agent_socket(start.home, start.environ, euid=os.geteuid())),
        listen=listening(doors),
        started_at=int(time.time()),
        home=residence,
        placed=start.place.placed.value,
        group=start.place.group,
        settings=settings.values(),
    )


def _guarding(settings: Settings) -> Guarding:
    """Return what the settings say of each group of the guard's rules."""
    return Guarding(
        secrets=settings.memory_guard_secrets or settings.memory_guard,
        injections=settings.memory_guard_injections or settings.memory_guard,
        invisible=settings.memory_guard_invisible or settings.memory_guard,
    )


def _warn(finding: Finding) -> None:
    logs.event("guard", rule=finding.rule, line=finding.line)


def _raise_file_limit() -> None:
    """Take as many descriptors as this account may: idle connections hold one each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
