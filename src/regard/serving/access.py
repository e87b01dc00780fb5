"""Who may ask: which names of this machine are good, which keys, and which other pages."""

import hmac
import re
import socket
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

from regard.errors import ConfigError, DataError

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
SHORTEST = 16  # characters of a key
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::\d*)?")  # a name or an address, and a port


@dataclass(frozen=True)
class Access:
    """The conditions under which a request is heard."""

    key: bytes | None = None
    """What a client must know; without it, whoever can reach the server may ask."""
    hosts: frozenset[str] = LOOPBACK_NAMES
    """Names under which the server may be addressed; addresses are always good."""
    origins: frozenset[str] = frozenset()
    """Pages from elsewhere that may ask, as `https://example.org`; `*` is all of them."""

    def knows(self, key: str | None) -> bool:
        """Whether a client has the key, compared in constant time; without a key, everyone does."""
        return self.key is None or (key is not None and hmac.compare_digest(key.encode("utf-8", "replace"), self.key))

    def addresses(self, host: str) -> bool:
        """Whether a Host header means this server.

        A page from elsewhere can let its own name lead to this machine (DNS rebinding), but it cannot take another
        name: who uses an address, or a name that the server knows, means the server.

        >>> Access().addresses("127.0.0.1:8000"), Access().addresses("[::1]"), Access().addresses("evil.example:8000")
        (True, True, False)
        """
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower().rstrip(".")
        return name in self.hosts or _is_address(name.removeprefix("[").removesuffix("]"))

    def allows(self, origin: str) -> bool:
        """Whether a page from elsewhere may ask."""
        return "*" in self.origins or origin in self.origins


def decide_access(
    host: str,
    *,
    key: bytes | None,
    open_to_all: bool = False,
    names: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
) -> Access:
    """What applies to a server at an address: beyond this machine, a key, or that everyone was said to be welcome."""
    if key is None and not open_to_all and not is_loopback(host):
        raise ConfigError(
            f"--host {host}: others can reach this address; give --api-key-file or REGARD_API_KEY, or say --no-auth."
        )
    for origin in origins:
        if origin != "*" and ("://" not in origin or origin.count("/") != 2):
            raise ConfigError(f"--cors {origin}: should be a page's origin such as https://example.org, or *.")
    known = {host.lower(), *(name.lower() for name in names)}
    if not is_loopback(host):
        known.add(socket.gethostname().lower())  # no more: whoever asks for its full name may wait for long
    return Access(key, LOOPBACK_NAMES | known, frozenset(origins))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES


@lru_cache(64)  # most clients go on under the name that they began with
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def read_key(path: Path | None, given: str | None) -> bytes | None:
    """The key in a file, else the one in the environment."""
    where, key = "REGARD_API_KEY", given
    if path is not None:
        where = str(path)
        try:
            key = path.read_text("utf-8-sig")
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); give the path of a file with a key.") from None
        except UnicodeDecodeError:
            raise DataError(f"{path}: is not UTF-8 text; give the path of a file with a key.") from None
    if key is None:
        return None
    key = key.strip()
    if not key:
        raise ConfigError(f"{where}: holds no key; put one of {SHORTEST} characters or more there.")
    if not key.isprintable():
        raise ConfigError(f"{where}: a key is one line of characters that can be typed; take out the others.")
    if len(key) < SHORTEST:
        raise ConfigError(f"{where}: a key of {len(key)} characters is easily guessed; take {SHORTEST} or more.")
    return key.encode()
