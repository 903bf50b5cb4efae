"""Keys of payment services."""

from __future__ import annotations

from typing import Final

from amux.hub.guard.rules import Rule, secret

RULES: Final[tuple[Rule, ...]] = (
    secret(
        "stripe-key",
        r"(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,255}|whsec_[A-Za-z0-9+/]{24,64}",
        hints=("sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_", "rk_prod_", "whsec_"),
        source="Stripe, API keys and webhook signatures",
        positive=("sk_live_<24 alnum>", "rk_test_<99 alnum>", "whsec_<32 alnum>"),
        negative=("sk_live_...", "pk_live_<24 alnum>"),
    ),
    secret(
        "square-token",
        r"EAAA[A-Za-z0-9_+-]{60}|sq0[a-z]{3}-[A-Za-z0-9_-]{43}|sq0atp-[A-Za-z0-9_-]{22}",
        hints=("EAAA", "sq0atp-", "sq0csp-"),
        source="Square, access tokens and application secrets",
        positive=("EAAA<60 urlsafe>", "sq0atp-<22 urlsafe>", "sq0csp-<43 urlsafe>"),
        negative=("sq0idp ids are public",),
    ),
    secret(
        "braintree-token",
        r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}",
        hints=("access_token$",),
        source="Braintree, access tokens",
        positive=("access_token$production$<16 lower>$<32 hex>",),
        negative=("access_token$sandbox",),
    ),
    secret(
        "shopify-token",
        r"shp(?:at|ca|pa|ss)_[A-Za-z0-9]{32}",
        hints=("shpat_", "shpca_", "shppa_", "shpss_"),
        source="Shopify, access token prefixes",
        positive=("shpat_<32 hex>", "shpss_<32 hex>"),
        negative=("shpat_token",),
    ),
    secret(
        "razorpay-key",
        r"rzp_(?:live|test)_[A-Za-z0-9]{14}",
        hints=("rzp_live_", "rzp_test_"),
        source="Razorpay, API keys",
        positive=("rzp_live_<14 alnum>",),
        negative=("rzp_test_key",),
    ),
    secret(
        "flutterwave-key",
        r"FLWSECK(?:_TEST)?-[a-zA-Z0-9]{12,64}(?:-X)?",
        hints=("FLWSECK",),
        source="Flutterwave, API keys",
        positive=("FLWSECK-<32 hex>-X", "FLWSECK_TEST-<32 hex>-X"),
        negative=("FLWSECK is the secret one",),
    ),
    secret(
        "plaid-token",
        r"access-(?:sandbox|development|production)-[a-f0-9]{8}-(?:[a-f0-9]{4}-){3}[a-f0-9]{12}",
        hints=("access-",),
        source="Plaid, access tokens",
        positive=("access-production-<8 hex>-<4 hex>-<4 hex>-<4 hex>-<12 hex>",),
        negative=("access-production-group",),
    ),
)
