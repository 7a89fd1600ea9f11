"""Access control: keys, tenants, rate limits, and CORS origins."""

from glow_service.access.control import (
    MAX_CLIENTS,
    Access,
    AccessControl,
    ClientLimits,
    RateLimiter,
    access_errors,
    access_of,
    client_of_scope,
    cors_options,
    parse_origins,
)
from glow_service.access.keys import (
    RequestIds,
    Tenant,
    check_keys,
    make_key,
    parse_keys,
    read_tenants,
    require_visible,
)

__all__ = [
    "MAX_CLIENTS", "Access", "AccessControl", "ClientLimits", "RateLimiter", "RequestIds", "Tenant", "access_errors",
    "access_of", "check_keys", "client_of_scope", "cors_options", "make_key", "parse_keys", "parse_origins",
    "read_tenants", "require_visible",
]  # fmt: skip
