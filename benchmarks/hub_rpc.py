"""What the Hub's process costs beside the engine in process: `benchmarks/hub_rpc.py`.

One run on one disk: a call through the Hub's socket against the same call in process, the
calls a second of 64 clients against those of one, and the memory of a Hub that has touched
10,000 scopes against one that has just started.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amux.hub import wire
from amux.hub.client import HubClient
from amux.hub.connection import Connection
from amux.hub.identity import token as tokens
from amux.hub.store import MemoryStore
from amux.hub.values import ABSENT, GetRequest, Scope, SearchRequest, UpsertRequest
from fixtures.hubs import HubHome, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.hub.identity import Token

ROUNDS: Final = 300
CLIENTS: Final = 64
CALLS: Final = 40
SCOPES: Final = 10_000
NOTE: Final = "# Tea\n\n- Green in the morning, none after four.\n"
PATH: Final = "preferences/tea.md"


def median_seconds(call: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    """Return the median time of a call."""
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def rpc(hub: HubHome, folder: Path) -> None:
    """Print each verb over HTTP against the same verb in process."""
    store = MemoryStore(folder)
    scope = Scope()
    turn = iter(range(10 * ROUNDS))

    def inside(number: int) -> bytes:
        request = UpsertRequest(path=f"w/{number}.md", content=NOTE, expected_revision=ABSENT)
        return wire.encode(store.upsert(scope, request))

    with hub.client("user") as user:

        def outside(number: int) -> object:
            request = UpsertRequest(path=f"w/{number}.md", content=NOTE, expected_revision=ABSENT)
            return user.upsert(request)

        request = UpsertRequest(path=PATH, content=NOTE, expected_revision=ABSENT)
        store.upsert(scope, request)
        user.upsert(request)
        get, search = GetRequest(path=PATH), SearchRequest(query="tea morning")
        rows: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
            ("health", lambda: None, user.health),
            ("get", lambda: wire.encode(store.get(scope, get)), lambda: user.get(get)),
            (
                "search",
                lambda: wire.encode(store.search(scope, search)),
                lambda: user.search(search),
            ),
            ("upsert", lambda: inside(next(turn)), lambda: outside(next(turn))),
        ]
        for name, direct, remote in rows:
            here, there = median_seconds(direct), median_seconds(remote)
            ratio = f"{there / here:6.1f} times" if name != "health" else "      -     "
            print(
                f"{name:7} in process {here * 1e3:7.3f} ms   through the Hub {there * 1e3:7.3f} ms"
                f"   {ratio}   the call adds {(there - here) * 1e3:6.3f} ms"
            )


def throughput(hub: HubHome) -> None:
    """Print calls a second of one client and of 64 at once."""
    rates: dict[int, float] = {}
    for clients in (1, CLIENTS):
        calls = CALLS * CLIENTS // clients
        barrier = threading.Barrier(clients + 1)

        def work(calls: int = calls, barrier: threading.Barrier = barrier) -> None:
            with hub.client("user") as user:
                barrier.wait()
                for _ in range(calls):
                    user.get(GetRequest(path=PATH))

        threads = [threading.Thread(target=work) for _ in range(clients)]
        for thread in threads:
            thread.start()
        barrier.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        rates[clients] = calls * clients / (time.perf_counter() - begin)
        print(f"get by {clients:2} clients   {rates[clients]:8.0f} calls a second")
    print(f"64 clients against one   {rates[CLIENTS] / rates[1]:.2f} times the calls")


def memory(folder: Path) -> None:
    """Print the Hub's resident memory fresh and after 10,000 scopes were read."""
    with running(folder, memory_isolation="principal") as hub:
        made = enrol_many(hub)
        with hub.client("user") as user:
            user.health()
        fresh = resident(hub)
        begin = time.perf_counter()
        for token in made:
            with HubClient(Connection(url=f"unix:{hub.private}", token=token.text)) as client:
                client.get(GetRequest(path=PATH))
                client.search(SearchRequest(query="tea"))
        taken = time.perf_counter() - begin
        touched = resident(hub)
    print(
        f"memory of the Hub   fresh {fresh / 1024:.1f} MiB   after {SCOPES} scopes "
        f"{touched / 1024:.1f} MiB   {touched / fresh:.2f} times   ({taken:.0f} s)"
    )


def enrol_many(hub: HubHome) -> list[Token]:
    """Add a Principal and a user credential for each scope, in one write of each file."""
    folder = hub.home / "identity"
    made = [tokens.make("user") for _ in range(SCOPES)]
    tree = json.loads((folder / "principals.json").read_bytes())
    tree["principals"] |= {f"p{token.id}": {"aliases": [], "created": 0} for token in made}
    (folder / "principals.json").write_text(json.dumps(tree))
    tree = json.loads((folder / "credentials.json").read_bytes())
    for token in made:
        tree["credentials"][token.id] = {
            "kind": "user",
            "sha256": token.digest,
            "principal": f"p{token.id}",
            "allowed": [],
            "label": "",
            "created": 0,
            "expires": None,
        }
    (folder / "credentials.json").write_text(json.dumps(tree))
    return made


def resident(hub: HubHome) -> int:
    """Return the Hub's resident memory in KiB."""
    if hub.process is None:
        raise RuntimeError("the Hub does not run")
    for line in Path(f"/proc/{hub.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel does not say VmRSS")


def main() -> int:
    """Print every figure."""
    with tempfile.TemporaryDirectory(prefix="amux-bench-") as name:
        folder = Path(name)
        with running(folder / "one") as hub:
            (folder / "direct").mkdir()
            rpc(hub, folder / "direct")
            throughput(hub)
        memory(folder / "many")
    return 0


if __name__ == "__main__":
    sys.exit(main())
