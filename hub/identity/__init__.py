"""Who may do what: Principals with aliases, enrolled credentials, and leases of launches."""

from hub.identity.credentials import Credential, CredentialFile
from hub.identity.launches import LEASE_SECONDS, Launch, LaunchBook
from hub.identity.principals import Principal, PrincipalFile, Principals, is_principal_id
from hub.identity.registry import Caller, Registry, open_identity
from hub.identity.token import Kind, Token

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
