"""The settings of one AMUX_HOME: `config.toml`, its known keys and its one locked writer.

A running Hub keeps the values that it started with; a change needs a restart.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from amux.hub.atomicfile import locked, replace_file
from amux.hub.errors import ConfigRefused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Isolation: TypeAlias = Literal["none", "principal"]
Guard: TypeAlias = Literal["block", "warn"]
GroupGuard: TypeAlias = Literal["", "block", "warn"]
SettingValue: TypeAlias = bool | str | tuple[str, ...]

_MOST_PORT: Final = 65535
CONFIG_FILE: Final = "config.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings; a field `memory_enabled` is the key `memory.enabled` of the file."""

    memory_enabled: bool = False
    memory_isolation: Isolation = "none"
    memory_guard: Guard = "block"
    memory_guard_secrets: GroupGuard = ""
    memory_guard_injections: GroupGuard = ""
    memory_guard_invisible: GroupGuard = ""
    memory_allow_network_mount: bool = False
    hub_listen: str = ""
    hub_names: tuple[str, ...] = ()
    hub_tls_cert: str = ""
    hub_tls_key: str = ""

    def values(self) -> dict[str, SettingValue]:
        """Return every key of the file with its value, in the documented order."""
        return {_key(field.name): getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Change:
    """What `set_setting` did: the key, its value before and after."""

    key: str
    before: SettingValue
    after: SettingValue


HELP: Final[Mapping[str, str]] = {
    "memory.enabled": "true or false: whether the Hub serves memory at all",
    "memory.isolation": "none (everyone shares one memory) or principal (one memory each)",
    "memory.guard": "block or warn: what to do with what the content guard finds in a write",
    "memory.guard_secrets": "block or warn for keys and tokens; empty: as memory.guard",
    "memory.guard_injections": "block or warn for orders to the reader; empty: as memory.guard",
    "memory.guard_invisible": "block or warn for unseen characters; empty: as memory.guard",
    "memory.allow_network_mount": "true or false: accept a root on nfs, cifs, 9p or fuse",
    "hub.listen": "HOST:PORT for TLS, or empty for Unix sockets only",
    "hub.names": "host names that clients may use, separated by commas",
    "hub.tls_cert": "absolute path of the PEM certificate chain",
    "hub.tls_key": "absolute path of the PEM private key",
}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "memory.isolation": ("none", "principal"),
    "memory.guard": ("block", "warn"),
    "memory.guard_secrets": ("block", "warn", ""),
    "memory.guard_injections": ("block", "warn", ""),
    "memory.guard_invisible": ("block", "warn", ""),
}


def known_keys() -> tuple[str, ...]:
    """Return every key that `config.toml` may hold."""
    return tuple(HELP)


def load(home: Path) -> Settings:
    """Read the settings; a missing file means the defaults. Raises ConfigRefused."""
    return _settings(_read(home), home / CONFIG_FILE)


def set_setting(home: Path, key: str, text: str) -> Change:
    """Set one key from its text form, under the writer's lock. Raises ConfigRefused."""
    check_key(key)
    return store_value(home, key, _parse(key, text))


def store_value(home: Path, key: str, value: SettingValue) -> Change:
    """Set one key to a typed value, under the writer's lock. Raises ConfigRefused."""
    import tomli_w  # noqa: PLC0415  # only writers pay for it

    with locked(home / ".config.lock"):
        before = load(home)
        after = _changed(before, key, value)
        tree: dict[str, dict[str, object]] = {}
        defaults = Settings().values()
        written = _flat(_read(home))
        for name, setting in after.values().items():
            if setting != defaults[name] or name in written or name == key:
                table, _, leaf = name.partition(".")
                plain = list(setting) if isinstance(setting, tuple) else setting
                tree.setdefault(table, {})[leaf] = plain
        try:
            replace_file(home / CONFIG_FILE, tomli_w.dumps(tree).encode())
        except OSError as error:
            raise ConfigRefused(f"cannot write {home / CONFIG_FILE}: {error.strerror}") from error
    return Change(key, before.values()[key], after.values()[key])


def show(value: SettingValue) -> str:
    """Return a value in the text form that `set_setting` takes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else ",".join(value)


def _changed(settings: Settings, key: str, value: object) -> Settings:
    """Return the settings with one key set. Raises ConfigRefused."""
    change: dict[str, Any] = {_field(key): _checked(key, value)}
    return replace(settings, **change)


def _key(field: str) -> str:
    return field.replace("_", ".", 1)


def _field(key: str) -> str:
    return key.replace(".", "_", 1)


def check_key(key: str) -> None:
    """Raise ConfigRefused, listing the known keys, for an unknown one."""
    if key not in HELP:
        raise ConfigRefused(f"unknown setting {key!r}; known are: {', '.join(HELP)}")


def _read(home: Path) -> dict[str, object]:
    path = home / CONFIG_FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigRefused(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigRefused(f"cannot read {path}: {error.strerror}") from error


def _flat(tree: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for table, entries in tree.items():
        if isinstance(entries, dict):
            flat.update({f"{table}.{leaf}": value for leaf, value in entries.items()})
        else:
            flat[table] = entries
    return flat


def _settings(tree: Mapping[str, object], path: Path) -> Settings:
    settings = Settings()
    for key, value in _flat(tree).items():
        try:
            check_key(key)
            plain = tuple(value) if isinstance(value, list) else value
            settings = _changed(settings, key, plain)
        except ConfigRefused as error:
            raise ConfigRefused(f"{path}: {error}") from error
    return settings


def _parse(key: str, text: str) -> SettingValue:
    default = Settings().values()[key]
    if isinstance(default, bool):
        lowered = text.strip().lower()
        if lowered not in {"true", "false"}:
            raise ConfigRefused(f"{key} is true or false, not {text!r}")
        return lowered == "true"
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text.strip()


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of `hub.listen`. Raises ConfigRefused."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > _MOST_PORT:
        raise ConfigRefused(
            f"hub.listen is {text!r}; it is HOST:PORT with a port of 0 to {_MOST_PORT}"
        )
    return host, int(port)


def _checked(key: str, value: object) -> SettingValue:
    """Return the value when its type and choice are right; raises ConfigRefused."""
    check_key(key)
    default = Settings().values()[key]
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ConfigRefused(f"{key} is true or false, not {value!r}")
        return value
    if isinstance(default, tuple):
        if not isinstance(value, tuple) or not all(isinstance(part, str) for part in value):
            raise ConfigRefused(f"{key} is a list of strings, not {value!r}")
        return value
    if not isinstance(value, str):
        raise ConfigRefused(f"{key} is a string, not {value!r}")
    choices = _CHOICES.get(key)
    if choices is not None and value not in choices:
        known = ", ".join(choice or "empty" for choice in choices)
        raise ConfigRefused(f"{key} is one of {known}, not {value!r}")
    if key == "hub.listen" and value:
        parse_listen(value)
    return value
