"""Keys that have no form of their own: known by the name before them, or by a prefix like one."""

from __future__ import annotations

import re
from typing import Final

from amux.hub.guard.randomness import is_drawn, stands_for_a_key
from amux.hub.guard.rules import RUN_LEAST, Rule

# What comes before "key" where a key is no secret.
_OPEN: Final = re.compile(
    r"(?:public|pub|publishable|primary|foreign|partition|sort|cache|hash|idempotency|host|object"
    r"|lookup|routing|row|map|storage|range|composite|natural|unique|group|dict|json|dedup"
    r"|deduplication|registry|site|verification|csrf)[-_. ]?$",
    re.IGNORECASE,
)
# What comes before "token" where a token is no secret: it makes a call happen once, or goes on.
_ONCE: Final = re.compile(
    r"(?:client|idempotency|lock|change|next|page|pagination|continuation|continue|sync|update"
    r"|unlock|fencing|sequence|resume|cursor|start|starting|request|csrf|xsrf)[-_. ]?$",
    re.IGNORECASE,
)
# What stands before the value of an id.
_ID: Final = re.compile(
    r"(?:\b|[-_a-z])(?:id|Id|ID|arn|Arn|ARN|name|Name)s?"
    r"[\"'`]{0,2}[ \t]{0,4}[:=]?[ \t]{0,4}[\"'`]?$"
)
_UUID: Final = re.compile(
    r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
)
_WORDS: Final = (
    "key", "token", "secret", "password", "passwd", "passphrase", "pwd", "pat", "auth",
    "credential", "session", "login", "ssws", "bearer",
)  # fmt: skip
# Names of a key alone, or of much else too: then a person's own words decide.
_BARE: Final = frozenset({"key", "pat", "auth", "session", "login"})
_VALUE: Final = r"[A-Za-z0-9+/=_.~:!@%*-]{16,4096}"
_BEFORE: Final = 24
_ARN_MOST: Final = 80
# A prefix of ids and digests, which are long and drawn and no secret.
_IDS: Final = re.compile(
    r"(?:^|[-_])(?:sha\d{0,3}|md5|blake\w{0,3}|commit|rev|revision|ref|tree|blob|digest|hash|etag|id|ids|uuid|urn"
    r"|trace|span|req|request|resp|response|msg|message|run|thread|asst|call|chatcmpl|cmpl|file|evt"
    r"|event|cus|customer|sub|in|inv|invoice|ch|pi|price|prod|product|seti|acct|pm|txn|tool|toolu"
    r"|job|build|img|image|layer|snap|snapshot|bundle|chunk|asset|static|main|index|vendor|app|pk|pub|public|phc"
    r"|deploy|release|artifact|cache|page|doc|object|node|item|user|team|org|project|order|batch"
    r"|upload|media|video|photo|test|tmp|temp|v\d{1,3})[-_.]$",
    re.IGNORECASE,
)
_DOTTED_LEAST: Final = 44
_DRAWN_LEAST: Final = 0.7
_PARTS_LEAST: Final = 2
_HEX: Final = re.compile(r"[0-9a-fA-F-]{1,4096}")
_HEX_LEAST: Final = 40


def _before(match: re.Match[str], group: str | int, most: int) -> str:
    at = match.start(group)
    return match.string[max(at - most, 0) : at]


def _is_named(match: re.Match[str]) -> bool:
    value = match["value"].rstrip(".:,;!=*")
    if "://" in value or value.startswith("arn:") or stands_for_a_key(match["value"]):
        return False
    name, before = match["name"].lower(), _before(match, "name", _BEFORE)
    joined = before[-1:].isalnum() or (before[-1:] in set("_-. ") and before[-2:-1].isalnum())
    if name in _BARE and not joined and before[-1:] not in set("?&"):
        return False
    if (name == "key" and _OPEN.search(before)) or (name == "token" and _ONCE.search(before)):
        return False
    if "arn:" in _before(match, "name", _ARN_MOST):
        return False
    return is_drawn(value)


def _is_id(match: re.Match[str]) -> bool:
    return bool(_ID.search(_before(match, 0, _BEFORE)))


def _is_dotted(match: re.Match[str]) -> bool:
    parts = re.split(r"[.~!]", match[0])
    drawn = [part for part in parts if is_drawn(part)]
    size = sum(map(len, drawn))
    if len(drawn) < _PARTS_LEAST or size < max(_DOTTED_LEAST, _DRAWN_LEAST * len(match[0])):
        return False
    return not _is_id(match) and not stands_for_a_key(drawn[-1])


def _is_hook(match: re.Match[str]) -> bool:
    if "hook" not in match[0].lower():
        return False
    parts = re.split(r"[/@?&=]", match["path"])
    return any(is_drawn(part) and not stands_for_a_key(part) for part in parts)


def _is_prefixed(match: re.Match[str]) -> bool:
    prefix, body = match["prefix"], match["body"]
    if _IDS.search(prefix) or _is_id(match) or _UUID.search(match[0]):
        return False
    if stands_for_a_key(body) or not is_drawn(body):
        return False
    if _HEX.fullmatch(body):
        return prefix.endswith("_") and len(body) >= _HEX_LEAST
    return True


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        name="named-secret",
        pattern=re.compile(
            rf"(?P<name>{'|'.join(_WORDS)})s?[\"'`\])]{{0,2}}"
            r"(?:[ \t]{0,8}(?:::|:=|=>|==|=|:|\||,)[ \t]{0,8}|[ \t]is[ \t]|[ \t])"
            r"(?:(?:bearer|basic|token|ssws)[ \t]{1,4})?"
            rf"[\"'`(]{{0,2}}(?P<value>{_VALUE})",
            re.IGNORECASE,
        ),
        hints=_WORDS,
        source="what scanners know by a setting's name: gitleaks, kingfisher, trufflehog",
        positive=(
            "ACME_API_KEY=<32 [a-z0-9]>",
            '"acme_secret": "<40 [a-zA-Z0-9]>"',
            '{"aws_secret_access_key": "<40 base64>"}',
            "acme token: <20 [a-zA-Z0-9_-]>",
            "| ACME_TOKEN | <32 hex> |",
            "curl https://api.example/v1?token=<32 alnum>",
            "Authorization: Bearer <40 alnum>",
            "acme_key: <8 hex>-<4 hex>-<4 hex>-<4 hex>-<12 hex>",
        ),
        negative=(
            "API_KEY=put-your-own-key-in-here-please",
            "cache_key: <40 hex>",
            "token = os.environ['GITHUB_TOKEN_FOR_RELEASES']",
            "the secret is payments-prod-db-credentials-v2",
            "Idempotency key: <8 hex>-<4 hex>-<4 hex>-<4 hex>-<12 hex>",
            "token_url: https://login.example/oauth2/v2.0/token/0b8d4f2e1f3c4c8b",
            "SECRET_KEY: ${{ secrets.DEPLOY_KEY }}",
        ),
        accepts=_is_named,
        run=RUN_LEAST,
    ),
    Rule(
        name="prefixed-secret",
        pattern=re.compile(
            r"(?<![A-Za-z0-9/_.+-])(?P<prefix>[A-Za-z][A-Za-z0-9]{0,15}"
            r"(?:[_-][A-Za-z0-9]{1,12}){0,3}[_-])(?P<body>[A-Za-z0-9]{32,512}|[A-Za-z0-9_=-]{40,512})(?![A-Za-z0-9/+_=-])"
        ),
        hints=("_", "-"),
        source="issuers put a name of their own before a drawn body, so that scanners find it",
        positive=("acme_live_<32 alnum>", "acme-<36 [a-z0-9]>", "acmep_<40 hex>"),
        negative=("sha256-<64 hex>", "resp_<48 hex>", "acme-<40 hex>.tar.gz", "acme_<24 alnum>"),
        accepts=_is_prefixed,
        run=34,
    ),
    Rule(
        name="url-password",
        pattern=re.compile(
            r"://[^\s/:@\"'`<>]{1,64}:(?P<value>[^\s/@\"'`<>{}$]{12,128})@[A-Za-z0-9\[]"
        ),
        hints=("://",),
        source="RFC 3986, userinfo",
        positive=("postgres://app:<24 alnum>@db.internal:5432/app",),
        negative=(
            "postgres://app:${DB_PASSWORD}@db:5432/app",
            "redis://user:password-from-vault@db",
        ),
        accepts=lambda match: is_drawn(match["value"]) and not stands_for_a_key(match["value"]),
        run=RUN_LEAST,
    ),
    Rule(
        name="dotted-secret",
        pattern=re.compile(
            r"(?<![A-Za-z0-9/._~-])[A-Za-z0-9_-]{1,128}(?:[.~!][A-Za-z0-9_-]{1,512}){1,6}(?![A-Za-z0-9/])"
        ),
        hints=(".", "~", "!"),
        source="tokens of several drawn parts: id, secret, signature",
        positive=("<22 alnum>.<24 alnum>.<20 alnum>", "acme.<32 alnum>.<32 hex>"),
        negative=("registry.example.com", "index.<40 hex>.js", "<20 alnum>.<20 alnum>"),
        accepts=_is_dotted,
        run=_DOTTED_LEAST,
    ),
    Rule(
        name="numbered-secret",
        pattern=re.compile(
            r"(?<![0-9A-Za-z-])[0-9]{1,20}[-|:][A-Za-z0-9]{40,128}(?![A-Za-z0-9/+=_-])"
        ),
        hints=("-", "|", ":"),
        source="the number of a key before its drawn body: TrueNAS, Laravel Sanctum",
        positive=("<12 digit>-<64 alnum>", "<2 digit>|<40 alnum>"),
        negative=("12-<64 hex>", "<12 digit>-<24 alnum>"),
        accepts=lambda match: (
            is_drawn(match[0])
            and not _HEX.fullmatch(re.split(r"[-|:]", match[0], maxsplit=1)[1])
            and not stands_for_a_key(match[0])
        ),
        run=42,
    ),
    Rule(
        name="salesforce-token",
        pattern=re.compile(r"(?<![A-Za-z0-9])00[A-Za-z0-9]{13}![A-Za-z0-9._]{90,120}"),
        hints=("!",),
        source="Salesforce, session ids as OAuth access tokens",
        positive=("00D<12 alnum>!<96 [A-Za-z0-9._]>",),
        negative=("00D is an organisation",),
        accepts=lambda match: not stands_for_a_key(match[0]),
        run=40,
    ),
    Rule(
        name="maxmind-key",
        pattern=re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9])"),
        hints=("_mmk",),
        source="MaxMind, licence keys",
        positive=("<6 alnum>_<29 alnum>_mmk",),
        negative=("a key ends in _mmk",),
        accepts=lambda match: not stands_for_a_key(match[0]),
        run=40,
    ),
    Rule(
        name="webhook-url",
        pattern=re.compile(r"https?://[A-Za-z0-9.-]{1,200}/(?P<path>[^\s\"'`<>)\]]{1,500})"),
        hints=("http",),
        source="a webhook's address is its only secret",
        positive=(
            "https://hooks.example.com/services/<24 alnum>",
            "https://a.example/webhook/<8 hex>-<4 hex>-<4 hex>-<4 hex>-<12 hex>",
        ),
        negative=(
            "https://a.example/docs/webhooks/signing-secrets",
            "https://a.example/download/<40 hex>",
        ),
        accepts=_is_hook,
        run=RUN_LEAST,
    ),
)
