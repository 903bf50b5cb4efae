"""Published formats of keys and tokens, from their issuers or from public secret scanners."""

from typing import Final

from hub.guard.keys import chat, cloud, code, general, model, office, payment
from hub.guard.rules import Rule

SECRETS: Final[tuple[Rule, ...]] = (
    *cloud.RULES,
    *code.RULES,
    *chat.RULES,
    *payment.RULES,
    *model.RULES,
    *office.RULES,
    *general.RULES,
)

__all__ = ["SECRETS"]
