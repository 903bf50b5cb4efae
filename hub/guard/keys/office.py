"""Keys of office services."""

from __future__ import annotations

from typing import Final

from amux.hub.guard.rules import Rule, secret

RULES: Final[tuple[Rule, ...]] = (
    secret(
        "notion-token",
        r"ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43}",
        hints=("ntn_", "secret_"),
        source="Notion, integration tokens",
        positive=("ntn_<46 alnum>", "secret_<43 alnum>"),
        negative=("secret_access_key", "secret_name"),
    ),
    secret(
        "figma-token",
        r"fig[dour]{1,2}_[A-Za-z0-9_-]{36,64}",
        hints=("figd_", "figu_", "figo_", "figr_", "figor_", "figur_"),
        source="Figma, personal access tokens",
        positive=("figd_<40 urlsafe>",),
        negative=("figd_token",),
    ),
    secret(
        "airtable-token",
        r"pat[A-Za-z0-9]{14}\.[a-z0-9]{60,68}",
        hints=("pat",),
        source="Airtable, personal access tokens",
        positive=("pat<14 alnum>.<64 hex>",),
        negative=("pathological.example",),
    ),
    secret(
        "dropbox-token",
        r"sl\.(?:u\.)?[A-Za-z0-9_-]{130,1400}",
        hints=("sl.",),
        source="Dropbox, short-lived access tokens",
        positive=("sl.<136 urlsafe>", "sl.u.<300 urlsafe>"),
        negative=("sl.po",),
    ),
    secret(
        "mapbox-secret-token",
        r"sk\.eyJ[A-Za-z0-9_-]{40,200}\.[A-Za-z0-9_-]{20,40}",
        hints=("sk.eyJ",),
        source="Mapbox, secret tokens",
        positive=("sk.eyJ<60 urlsafe>.<22 urlsafe>",),
        negative=("sk.eyJ starts one",),
    ),
    secret(
        "onepassword-key",
        r"ops_eyJ[A-Za-z0-9+/_-]{200,2000}={0,3}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
        hints=("ops_eyJ", "A3-"),
        source="1Password, service account tokens and secret keys",
        positive=("ops_eyJ<300 base64>", "A3-<6 upper>-<11 upper>-<5 upper>-<5 upper>-<5 upper>"),
        negative=("A3-sized paper",),
    ),
)
