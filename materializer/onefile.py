"""Pack the agent side into one executable file that needs a Python 3.9 and nothing else."""

from __future__ import annotations

from importlib import resources
from typing import Final

INTERPRETER: Final = "/usr/bin/python3"

_HEAD = '''\
#!{interpreter} -IS
"""amux, the agent side: `memory COMMAND …` and `mcp`. Built by amux.materializer.onefile."""

import sys

sys.dont_write_bytecode = True
_SOURCES = {{
'''

_TAIL = '''\
}


class _Finder:
    """Import the packed modules; each is compiled only when it is asked for."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in _SOURCES:
            return None
        spec = _Spec(name, _Finder, origin=__file__)
        if name.endswith("agentside") or name.count(".") < 2:
            spec.submodule_search_locations = []
        return spec

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        name = module.__spec__.name
        exec(compile(_SOURCES[name], "<" + name + ">", "exec", 0, True), module.__dict__)


if __name__ == "__main__":
    _Spec = type(sys.__spec__)
    sys.meta_path.insert(0, _Finder)
    try:
        from amux.materializer.agentside.main import main
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main(sys.argv[1:]))
'''


def build(interpreter: str = INTERPRETER) -> bytes:
    """Return the file's bytes; the same sources and interpreter give the same bytes.

    `interpreter` is an absolute path without blanks; it stands in the first line with `-IS`:
    isolated from the environment and from site packages. Raises `ValueError` for another.
    """
    if not interpreter.startswith("/") or any(not c.isprintable() or c == " " for c in interpreter):
        raise ValueError(f"not an absolute path without blanks: {interpreter!r}")
    sources = {"amux": "", "amux.materializer": ""}
    folder = resources.files("amux.materializer.agentside")
    for file in sorted(folder.iterdir(), key=lambda found: found.name):
        if file.name.endswith(".py"):
            module = "" if file.name == "__init__.py" else "." + file.name[: -len(".py")]
            sources["amux.materializer.agentside" + module] = file.read_text("utf-8")
    packed = "".join(f"    {name!r}: {text!r},\n" for name, text in sources.items())
    return (_HEAD.format(interpreter=interpreter) + packed + _TAIL).encode()
