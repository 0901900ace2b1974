"""Which client an address belongs to."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address

CLIENT_BITS = 64  # the smallest IPv6 network: a machine takes any number of its addresses


def client_of(address: str) -> str:
    """Return what limits count as one client: an IPv4 address, or an IPv6 network.

    Parameters
    ----------
    address : str
        As the socket tells it; empty for a socket that has none.

    Examples
    --------
    >>> client_of("192.0.2.7"), client_of("::ffff:192.0.2.7"), client_of("")
    ('192.0.2.7', '192.0.2.7', '')
    >>> client_of("2001:db8:0:1::7"), client_of("2001:db8:0:1:a:b:c:d"), client_of("::1")
    ('2001:db8:0:1::/64', '2001:db8:0:1::/64', '::1')
    """
    try:
        parsed = ip_address(address.partition("%")[0])  # without the interface of a link
    except ValueError:  # of another kind of transport
        return address
    if not isinstance(parsed, IPv6Address) or parsed.is_loopback:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), CLIENT_BITS), strict=False))


def is_here(address: str) -> bool:
    """Tell whether an address is one of this machine alone.

    Examples
    --------
    >>> [is_here(address) for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "", "10.0.0.1")]
    [True, True, True, True, False]
    """
    client = client_of(address)
    return not client or ("/" not in client and ip_address(client).is_loopback)
