"""A small Runtime: an agent for each of three people, each in a home of their own.

    python service.py /srv/agents                          # cat stands for the agent
    python service.py /srv/agents parrot /opt/bin/parrot   # another provider, and its command

A home that amux relocates is weak isolation; `LaunchRequest(user=…)` is the strong one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from amux import AmuxError, EventKind, LaunchRequest, Session, Supervisor, Watch

PEOPLE = ("alice", "bob", "carol")


def request_for(home: Path, provider: str, command: str) -> LaunchRequest:
    """Return what one person's launch asks for."""
    home.mkdir(parents=True, exist_ok=True)
    given = {"PATH": os.environ["PATH"]}
    if provider == "generic":
        return LaunchRequest(
            provider=provider, arguments=(command,), private_home=home, cwd=home, environment=given
        )
    return LaunchRequest(
        provider=provider, executable=Path(command), private_home=home, cwd=home, environment=given
    )


def greet(session: Session, person: str) -> str:
    """Say who is there, as lines or as JSON, and return the agent's answer."""
    if session.report.provider == "generic":
        session.send_line(person)
        return session.receive_line(deadline=30)
    session.send({"from": person})
    return str(session.receive(deadline=30))


def follow(events: Watch, owners: dict[str, str]) -> None:
    """Say how each agent ended, and return when the last one has."""
    while owners:
        event = next(events)
        if event.kind is EventKind.ENDED and event.session in owners:
            print(f"{owners.pop(event.session)}: ended with {event.status}")


def main(folder: str, provider: str = "generic", command: str = "cat") -> int:
    """Start three agents, talk to each, stop them, and see each of them end."""
    owners: dict[str, str] = {}
    with Supervisor(Path(folder) / "amux") as supervisor, supervisor.watch() as events:
        for person in PEOPLE:
            try:
                session = supervisor.launch(request_for(Path(folder) / person, provider, command))
                print(f"{person}: {greet(session, person)}")
            except AmuxError as error:
                again = "it may work later" if error.retryable else "mend that first"
                print(f"{person}: {error.code}: {error} ({again})", file=sys.stderr)
            else:
                owners[session.id] = person
        started = len(owners)
        for session in supervisor.running():
            session.begin_stop()
        follow(events, owners)
    return 0 if started == len(PEOPLE) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
