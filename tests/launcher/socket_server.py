"""A server that makes a socket, as an agent's own would; run as a program by the tests.

Its arguments: the socket's path, and how it behaves.
"""

import json
import socket
import sys
import threading

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, unix_serve

PATH, KIND = sys.argv[1], sys.argv[2]


def talk(connection: ServerConnection) -> None:
    """Echo requests; announce one thread; refuse `no`; end the program at `die`."""
    connection.send(json.dumps({"method": "thread/started", "params": {"id": "t1"}}))
    try:
        for frame in connection:
            message = json.loads(frame)
            if message["method"] == "die":
                print("it died", file=sys.stderr, flush=True)  # noqa: T201  # what stderr is for
                os_exit()
            if "id" not in message:
                continue
            answer = {"result": {"echo": message["params"]}}
            if message["method"] == "no":
                answer = {"error": {"code": -32600, "message": "never"}}
            connection.send(json.dumps({"id": message["id"], **answer}))
    except ConnectionClosed:
        pass


def os_exit() -> None:
    """End at once, as a crash does."""
    import os  # noqa: PLC0415  # only here

    os._exit(3)


if KIND == "ends":
    sys.exit("cannot serve")
if KIND == "never":
    threading.Event().wait()
if KIND == "plain":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(PATH)
    listener.listen()
    while True:
        client, _ = listener.accept()
        client.recv(1024)
        client.close()
with unix_serve(talk, PATH, compression=None) as server:
    server.serve_forever()
