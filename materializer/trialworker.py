"""The worker of `trial`: become the target, then execute the command.

Standard input carries JSON: `argv`, `environment`, `cwd`; `identity` with `uid`, `gid`, `groups`,
or null to keep this one; `parent`, the pid of who started it; `reads`, files that must open first.
Where that fails, the process ends with 125 and a line on standard error.
"""

from __future__ import annotations

import json
import os
import sys

NOT_STARTED = 125


def main() -> None:
    """Read the order, take on its identity, execute its command."""
    from amux.materializer import privileges  # noqa: PLC0415  # `trial` imports this module too

    order = json.load(sys.stdin.buffer)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    step = "identity"
    try:
        who = order["identity"]
        if who is not None:
            target = privileges.Ids(who["uid"], who["gid"], who["groups"])
            privileges.drop(target, death_signal=privileges.SIGKILL, parent=order["parent"])
        step = order["cwd"]
        os.chdir(step)
        for step in order["reads"]:
            os.close(os.open(step, os.O_RDONLY | os.O_NOFOLLOW))
        step = order["argv"][0]
        os.execve(step, order["argv"], order["environment"])  # noqa: S606  # exactly these arguments
    except privileges.NotDropped as error:
        sys.stderr.write(f"amux: {error}\n")
    except OSError as error:
        sys.stderr.write(f"amux: {step}: {error.strerror}\n")
    sys.stderr.flush()
    os._exit(NOT_STARTED)
