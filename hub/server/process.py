"""The life of a Hub process: claim the root, open the sockets, serve, stop cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hub import config, logs, mounts
from hub.enrolment import enrol_local
from hub.errors import ConfigRefused, HomeRefused
from hub.guard import Guarding
from hub.holder import Holder, process_start
from hub.home import agent_socket, open_passable_folder, private_socket
from hub.identity import open_identity
from hub.leftovers import remove_leftovers
from hub.placement import SENTENCES, Place, Placed
from hub.residence import settle
from hub.server.app import VERSION, HubApp
from hub.server.body import BodyReader
from hub.server.listener import Listener, tls_context
from hub.server.root import claim
from hub.server.sockets import bind_tcp, bind_unix
from hub.server.turns import Shares, Workers
from hub.service import Door, HubService
from hub.stopmark import STOPPED, clear_mark, is_marked
from hub.store import MemoryStore
from hub.unixsocket import connect

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator, Mapping

    from hub.config import Settings
    from hub.guard import Finding
    from hub.server.root import Root

THREADS: Final = 24
# Searches keep the interpreter busy; the loop that answers everyone gets it back sooner.
SWITCH_SECONDS: Final = 0.0005
SWEEP_SECONDS: Final = 600.0
WATCH_SECONDS: Final = 10.0
SHARED_SECONDS: Final = 2.0
UNIX_HOSTS: Final = frozenset({"localhost", "amux"})
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared with, not bound
NOWHERE: Final = Place()
_WANTED_FILES: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a Hub is started with."""

    home: Path
    environ: Mapping[str, str]
    settings: Settings
    place: Place
    unasked: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """A bound socket with the application behind it."""

    door: Door
    bound: socket.socket
    hosts: frozenset[str]
    path: Path | None = None
    home: str | None = None
    tls: ssl.SSLContext | None = None


def serve(
    home: Path,
    environ: Mapping[str, str],
    *,
    place: Place = NOWHERE,
    unasked: bool = False,
    ready: Callable[[], None],
) -> None:
    """Serve this home until SIGTERM or SIGINT; `ready` is called once calls are answered.

    `unasked` serves no home whose Hub was stopped on purpose. Raises HomeRefused,
    ConfigRefused, IdentityRefused, AlreadyRunning, and StorageFailed for a file system that cannot
    be relied on, before that.
    """
    root = claim(home)
    try:
        settings = config.load(home)
        for folder in (home, home / "memory"):
            mounts.require_local(folder.resolve(), allow=settings.memory_allow_network_mount)
        remove_leftovers(home)
        enrol_local(home)
        with _held(home) as opened:
            start = Start(
                home=home, environ=environ, settings=settings, place=place, unasked=unasked
            )
            _serve(start, opened, root, ready=ready)
    finally:
        root.release()


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


def _serve(start: Start, folder: int, root: Root, *, ready: Callable[[], None]) -> None:
    settings, place = start.settings, start.place
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
        _open_far_doors(doors, start)
        residence = settle(here).text
        if not start.unasked:
            clear_mark(here)
        root.announce(_holder(start, doors, residence))
        if start.unasked and is_marked(here):
            raise HomeRefused(STOPPED)
        path = private_socket(here)
        bound = bind_unix(path, mode=0o600)
        doors.append(Opened(Door.PRIVATE, bound, UNIX_HOSTS, path, home=residence))

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
        _close_doors(doors)


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


def _open_far_doors(doors: list[Opened], start: Start) -> None:
    """Open the agents' socket, and the one for TLS where it is configured."""
    settings = start.settings
    path = agent_socket(start.home, start.environ, euid=os.geteuid())
    if path.parent != start.home:
        open_passable_folder(path.parent)
        _refuse_shared(path)
    doors.append(Opened(Door.AGENTS, bind_unix(path, mode=0o666), UNIX_HOSTS, path))
    if settings.hub_listen:
        host, port = _listen(settings)
        tls = tls_context(settings.hub_tls_cert, settings.hub_tls_key)
        hosts = frozenset(name.lower() for name in (*settings.hub_names, host))
        bound = bind_tcp(host, port)
        doors.append(Opened(Door.TLS, bound, hosts - _ANY_ADDRESS, tls=tls))


def _refuse_shared(path: Path) -> None:
    """Refuse to take the place of a living Hub, which has the same AMUX_RUNS."""
    with contextlib.suppress(OSError):
        connect(path, seconds=SHARED_SECONDS).close()
        raise HomeRefused(
            f"the Hub of another home answers at {path}; "
            "set AMUX_RUNS to a folder of this home's own"
        )


def _close_doors(doors: list[Opened]) -> None:
    for opened in doors:
        opened.bound.close()
        if opened.path is not None:
            with contextlib.suppress(OSError):
                opened.path.unlink()


def _listen(settings: Settings) -> tuple[str, int]:
    """Return host and port of `hub.listen`. Raises ConfigRefused."""
    host, port = config.parse_listen(settings.hub_listen)
    if not settings.hub_tls_cert or not settings.hub_tls_key:
        raise ConfigRefused(
            "hub.listen needs hub.tls_cert and hub.tls_key: plain HTTP is never served"
        )
    if host in _ANY_ADDRESS and not settings.hub_names:
        raise ConfigRefused("hub.listen names no host, so set hub.names to what clients call it")
    _check_key_file(Path(settings.hub_tls_key))
    return host, port


def _check_key_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigRefused(f"cannot look at hub.tls_key {path}: {error.strerror}") from error
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigRefused(f"hub.tls_key {path} is open to others; run: chmod o-rwx,g-w {path}")


def _holder(start: Start, doors: list[Opened], residence: str) -> Holder:
    return Holder(
        pid=os.getpid(),
        start=process_start(os.getpid()) or 0,
        version=VERSION,
        socket=str(private_socket(start.home)),
        agent_socket=str(agent_socket(start.home, start.environ, euid=os.geteuid())),
        listen=_listening(doors),
        started_at=int(time.time()),
        home=residence,
        placed=start.place.placed.value,
        group=start.place.group,
        settings=start.settings.values(),
    )


def _listening(doors: list[Opened]) -> str:
    """Return the TLS socket's address as bound, also when the port was left to the kernel."""
    for opened in doors:
        if opened.door is Door.TLS:
            host, port = opened.bound.getsockname()[:2]
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ""


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
