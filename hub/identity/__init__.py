"""Who may do what: Principals with aliases, enrolled credentials, and leases of launches."""

from amux.hub.identity.credentials import Credential, CredentialFile
from amux.hub.identity.launches import LEASE_SECONDS, Launch, LaunchBook
from amux.hub.identity.principals import Principal, PrincipalFile, Principals, is_principal_id
from amux.hub.identity.registry import Caller, Registry, open_identity
from amux.hub.identity.token import Kind, Token

__all__ = [
    "LEASE_SECONDS",
    "Caller",
    "Credential",
    "CredentialFile",
    "Kind",
    "Launch",
    "LaunchBook",
    "Principal",
    "PrincipalFile",
    "Principals",
    "Registry",
    "Token",
    "is_principal_id",
    "open_identity",
]
