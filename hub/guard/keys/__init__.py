"""Published formats of keys and tokens, from their issuers or from public secret scanners."""

from typing import Final

from amux.hub.guard.keys import (
    chat,
    cloud,
    code,
    general,
    model,
    named,
    office,
    payment,
    prefixes,
)
from amux.hub.guard.rules import Rule

SECRETS: Final[tuple[Rule, ...]] = (
    *cloud.RULES,
    *code.RULES,
    *chat.RULES,
    *payment.RULES,
    *model.RULES,
    *office.RULES,
    *general.RULES,
    *prefixes.RULES,
    *named.RULES,
)

__all__ = ["SECRETS"]
