"""The five memory commands: search, show, upsert, forget, export."""

from __future__ import annotations

from amux.materializer.agentside.connection import find_connection
from amux.materializer.agentside.errors import DONE, Failure
from amux.materializer.agentside.hub import call
from amux.materializer.agentside.options import FILE, FLAG, NUMBER, TEXT, parse
from amux.materializer.agentside.streams import (
    STDIN,
    STDOUT,
    complain,
    read_limited,
    to_json,
    write_all,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amux.materializer.agentside.connection import Connection
    from amux.materializer.agentside.options import Options

    Command = Callable[[Options, Callable[[], Connection]], bytes]

MOST_MATCHES = 20  # of one search
MAX_CONTENT = 1024 * 1024  # bytes; the Hub's own limits are lower, this one ends endless input

OVERVIEW = """\
usage: amux memory COMMAND …

Memory is a set of Markdown documents that the amux Hub keeps for you. Paths such as
MEMORY.md or projects/amux/decisions.md are names inside the Hub, not local files.

  search QUERY                            find documents by literal words
  show PATH                               read a document, or a part of it
  upsert PATH --expected-revision R       create or replace a document (text from stdin)
  forget PATH --expected-revision R       delete a document
  export PATH                             print one whole document as it is

amux memory COMMAND --help says more. Answers are JSON on standard output, errors are one
JSON object on standard error. Exit status: 0 done (a missing document in show too),
2 usage, 3 conflict (read again, merge, repeat), 4 refused (identity, binding, memory off),
5 the Hub cannot be reached, 6 limit, path or content, 1 anything else.
"""

HELP = {
    "search": """\
usage: amux memory search QUERY [--path-prefix P] [--limit N] [--cursor C] [--all]

Find documents that hold any of QUERY's words. Words are literal: no wildcards, no synonyms;
try other words when nothing is found.

  --path-prefix P   only documents below this folder, such as projects/amux
  --limit N         1 to 20 documents (default 5)
  --cursor C        continue an incomplete search: the cursor of its answer, same QUERY
  --all             follow the cursors until everything was searched; --limit is then for
                    each part of the search, 20 by default

Prints {"matches": [{"path", "line", "snippet", "truncated", "revision", "age_days"}],
"scanned_files", "skipped_files", "incomplete", "truncated", "cursor"}.
""",
    "show": """\
usage: amux memory show PATH [--start-line N] [--end-line N] [--offset N]

Read a document, or lines N to N of it (from 1, both included).

  --offset N   continue a truncated answer: its next_offset, with the same --end-line

Prints {"path", "exists", "revision", "text", "truncated", "next_offset"}. A document that
does not exist is {"exists": false, "revision": "absent"} with status 0.
""",
    "upsert": """\
usage: amux memory upsert PATH --expected-revision R [--file F] < text

Create or replace a whole document with UTF-8 Markdown from standard input.

  --expected-revision R   the revision that show gave, or absent for a new document
  --file F                read the text from this file instead

Prints {"path", "revision", "unchanged"}; saved only if the status is 0. Status 3 means that
somebody else changed it: show it again, merge, and repeat with the new revision.
""",
    "forget": """\
usage: amux memory forget PATH --expected-revision R

Delete a document. Look for other documents that say the same thing.

  --expected-revision R   the revision that show gave

Prints {"path", "revision", "already_absent"}.
""",
    "export": """\
usage: amux memory export PATH [--json]

Print one whole document, byte for byte. If it is changed meanwhile, nothing is printed and
the status is 3.

  --json   print {"path", "revision", "text"} instead
""",
}


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run `memory COMMAND …` and return the exit status; raises `Failure`."""
    name = argv[0] if argv else "--help"
    if name in ("--help", "-h", "help"):
        write_all(STDOUT, OVERVIEW.encode())
        return DONE
    if name not in COMMANDS:
        raise Failure(
            "invalid_request", "The memory commands are search, show, upsert, forget and export."
        )
    command, kinds = COMMANDS[name]
    usage = HELP[name].partition("\n")[0].partition(": ")[2]
    try:
        options = parse(argv[1:], {**kinds, "--json": FLAG, "--help": FLAG, "-h": FLAG})
        if options.flag("--help") or options.flag("-h"):
            write_all(STDOUT, HELP[name].encode())
            return DONE
        answer = command(options, lambda: find_connection(environ))
    except Failure as failure:
        if failure.code == "invalid_request":
            failure.fields.setdefault("usage", usage)
        raise
    write_all(STDOUT, answer)
    return DONE


def _search(options: Options, connect: Callable[[], Connection]) -> bytes:
    if not options.words:
        raise Failure("invalid_request", "Say what to search for.")
    request: dict[str, object] = {"query": " ".join(options.words)}
    for name, field in (("--path-prefix", "path_prefix"), ("--cursor", "cursor")):
        if options.text(name) is not None:
            request[field] = options.text(name)
    if "--limit" in options.values:
        request["limit"] = options.number("--limit")
    connection = connect()
    if options.flag("--all"):
        request.setdefault("limit", MOST_MATCHES)
        return to_json(_search_all(connection, request)) + b"\n"
    return to_json(call(connection, "search", request)) + b"\n"


def _search_all(connection: Connection, request: dict[str, object]) -> dict[str, object]:
    """Follow the cursors to the end; one answer, its matches page by page."""
    matches: list[object] = []
    scanned = skipped = 0
    truncated = False
    seen = {request.get("cursor")}
    while True:
        page = call(connection, "search", request)
        found = page.get("matches")
        matches += found if isinstance(found, list) else []
        scanned += _count(page, "scanned_files")
        skipped += _count(page, "skipped_files")
        truncated = truncated or bool(page.get("truncated"))
        cursor = page.get("cursor")
        incomplete = bool(page.get("incomplete")) and isinstance(cursor, str)
        if not incomplete or cursor in seen:
            break
        seen.add(cursor)
        request = {**request, "cursor": cursor}
        complain(f"{scanned} documents searched, {len(matches)} found\n".encode())
    return {
        "matches": matches,
        "scanned_files": scanned,
        "skipped_files": skipped,
        "incomplete": bool(page.get("incomplete")),
        "truncated": truncated,
    }


def _show(options: Options, connect: Callable[[], Connection]) -> bytes:
    request: dict[str, object] = {"path": _path(options)}
    for name in ("--start-line", "--end-line", "--offset"):
        if name in options.values:
            request[name[2:].replace("-", "_")] = options.number(name)
    return to_json(call(connect(), "get", request)) + b"\n"


def _upsert(options: Options, connect: Callable[[], Connection]) -> bytes:
    path, revision = _path(options), _revision(options)
    connection = connect()
    content = _content(options)
    request: dict[str, object] = {
        "path": path,
        "content": content,
        "expected_revision": revision,
    }
    return to_json(call(connection, "upsert", request)) + b"\n"


def _forget(options: Options, connect: Callable[[], Connection]) -> bytes:
    request: dict[str, object] = {"path": _path(options), "expected_revision": _revision(options)}
    return to_json(call(connect(), "forget", request)) + b"\n"


def _export(options: Options, connect: Callable[[], Connection]) -> bytes:
    path = _path(options)
    connection = connect()
    page = call(connection, "get", {"path": path})
    if not page.get("exists"):
        raise Failure("not_found", f"There is no document {path}.", path=path)
    revision, text = page.get("revision"), str(page.get("text"))
    offset = 0
    while page.get("truncated"):
        following = _count(page, "next_offset")
        if following <= offset:
            raise Failure("internal", "The Hub's pages do not go on; nothing was printed.")
        offset = following
        page = call(connection, "get", {"path": path, "offset": offset})
        if page.get("revision") != revision:
            raise Failure(
                "conflict",
                f"{path} was changed while it was read, so nothing was printed: export it again.",
                revision=page.get("revision"),
            )
        text += str(page.get("text"))
    if options.flag("--json"):
        return to_json({"path": path, "revision": revision, "text": text}) + b"\n"
    return text.encode()


def _path(options: Options) -> str:
    if len(options.words) != 1:
        raise Failure("invalid_request", "Give exactly one PATH, such as MEMORY.md.")
    return options.words[0]


def _revision(options: Options) -> str:
    revision = options.text("--expected-revision")
    if revision is None:
        raise Failure(
            "invalid_request",
            "--expected-revision is needed: the revision that show gave, or absent for a new"
            " document.",
        )
    return revision


def _content(options: Options) -> str:
    name = options.values.get("--file")
    try:
        if isinstance(name, str) and name != "-":
            with open(name, "rb", buffering=0) as file:
                raw = read_limited(file.fileno(), MAX_CONTENT)
        else:
            raw = read_limited(STDIN, MAX_CONTENT)
            if not raw:
                raise Failure(
                    "invalid_request",
                    "There is no text on standard input, so nothing was written: send the whole"
                    " document there, or name it with --file; forget deletes one.",
                )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Failure("invalid_request", f"The text cannot be read: {reason}.") from error
    if len(raw) > MAX_CONTENT:
        raise Failure(
            "limit_exceeded",
            f"The text is longer than {MAX_CONTENT} bytes; nothing was written.",
            limit="request",
            maximum=MAX_CONTENT,
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Failure(
            "undecodable",
            f"The text is not UTF-8 (byte {error.start}); nothing was written.",
        ) from error


def _count(page: dict[str, object], name: str) -> int:
    value = page.get(name)
    return value if isinstance(value, int) else 0


# A session that began with an older amux goes on with the words that it was told: only add.
COMMANDS: dict[str, tuple[Command, dict[str, str]]] = {
    "search": (
        _search,
        {"--path-prefix": TEXT, "--limit": NUMBER, "--cursor": TEXT, "--all": FLAG},
    ),
    "show": (_show, {"--start-line": NUMBER, "--end-line": NUMBER, "--offset": NUMBER}),
    "upsert": (_upsert, {"--expected-revision": TEXT, "--file": FILE}),
    "forget": (_forget, {"--expected-revision": TEXT}),
    "export": (_export, {}),
}
