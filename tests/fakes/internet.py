"""A public internet on loopback: names with public addresses, and every address a port of this machine."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from httpcore2 import AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream, ConnectError

from memory.errors import Unavailable
from memory.outbound import Limits, Outbound
from memory.outbound_addresses import Address, Network
from memory.outbound_hosts import HostLimits, Hosts
from tests.fakes.directory import Directory, directory

PUBLIC = "9.9.9.9"  # any address that is public: the wire leads it to this machine
DEAD = "1.1.1.1"


class Names:
    """Name → addresses, and name → texts. A list of lists is one answer after another, the last for good."""

    def __init__(self) -> None:
        self.hosts: dict[str, list[list[str]] | Unavailable] = {}
        self.records: dict[str, list[str] | Unavailable] = {}
        self.asked: list[str] = []

    def add(self, name: str, *answers: Sequence[str]) -> None:
        """Gives a host its addresses."""
        self.hosts[name] = [list(answer) for answer in answers]

    async def addresses(self, name: str) -> Sequence[Address]:
        self.asked.append(name)
        answers = self.hosts.get(name, [[]])
        if isinstance(answers, Unavailable):
            raise answers
        return [ip_address(each) for each in (answers.pop(0) if len(answers) > 1 else answers[0])]

    async def texts(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        answer = self.records.get(name, [])
        if isinstance(answer, Unavailable):
            raise answer
        return answer


class Wire(AsyncNetworkBackend):
    """Leads every address and port to one port of this machine; `dead` addresses to nowhere."""

    def __init__(self, port: int, *, dead: Iterable[str] = ()) -> None:
        self.connected: list[tuple[str, int]] = []
        self._port = port
        self._dead = frozenset(dead)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the library's signature
        local_address: str | None = None,
        socket_options: Iterable[object] | None = None,
    ) -> AsyncNetworkStream:
        self.connected.append((host, port))
        if host in self._dead:
            raise ConnectError
        return await AnyIOBackend().connect_tcp("127.0.0.1", self._port, timeout)


LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
UNLIMITED = HostLimits(requests_per_s=1e6, burst=1000, concurrent=100)


def plain_outbound(
    *,
    allowed: Sequence[Network] = LOOPBACK,
    network: AsyncNetworkBackend | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Outbound:
    """For loopback only, by plain HTTP, as in development."""
    return Outbound(Names(), Hosts(strangers=UNLIMITED), allowed=allowed, network=network, monotonic=monotonic)


# Python 3.13 insists on it, and on the key identifiers (RFC 5280).
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Authority:
    """A certificate authority that nobody but the test trusts."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Mandarin Trust")])
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, SHA256())
        )

    def clients(self) -> ssl.SSLContext:
        """For those who trust it."""
        return ssl.create_default_context(cadata=self._certificate.public_bytes(Encoding.PEM).decode())

    def server(self, folder: Path, *names: str) -> ssl.SSLContext:
        """For a server that stands for all these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(x509.Name([]), key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, SHA256())
        )
        file = folder / "server.pem"
        file.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + certificate.public_bytes(Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - timedelta(days=1))
            .not_valid_after(self._now + timedelta(days=1))
        )


class Internet:
    """Hosts with certificates at public addresses, all of them one directory; `stranger.example` has none."""

    def __init__(self, fake: Directory, authority: Authority) -> None:
        self.fake = fake
        self.names = Names()
        self.wire = Wire(fake.port, dead=[DEAD])
        self._authority = authority

    def outbound(self, *, hosts: Hosts | None = None, allowed: Sequence[Network] = ()) -> Outbound:
        """The way out to it."""
        return Outbound(
            self.names,
            hosts or Hosts(strangers=UNLIMITED),
            allowed=allowed,
            network=self.wire,
            ssl_context=self._authority.clients(),
        )

    async def get(self, url: str, limits: Limits | None = None, *, allowed: Sequence[Network] = ()) -> bytes:
        """One answer from it."""
        async with self.outbound(allowed=allowed) as outbound:
            return await outbound.get(url, limits)


@asynccontextmanager
async def internet_at(folder: Path, *names: str) -> AsyncGenerator[Internet]:
    """An internet of these hosts; their certificate goes into `folder`."""
    authority = Authority(datetime.now(UTC))
    async with directory(authority.server(folder, *names)) as fake:
        internet = Internet(fake, authority)
        for name in (*names, "stranger.example"):
            internet.names.add(name, [PUBLIC])
        yield internet
