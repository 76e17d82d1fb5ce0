"""Certificates for a server of a test: an authority of its own, a server's pair, and one of its user `app`.

    certificates = issue(folder)
    with postgres(tls=certificates) as server:
        server.url(sslmode="verify-full", sslrootcert=str(certificates.authority))

The server's certificate is good for 127.0.0.1 and for localhost, so that `verify-full` can be shown to
pass and, with a second authority, to fail. Needs the package `cryptography`; only tests come here.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files: the authority's certificate, the server's certificate and key, and those of the client."""

    authority: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path

    def install(self, data: Path, own: Callable[[Path], None]) -> dict[str, str | bool]:
        """Copy the server's files into its data folder; the settings that make it use them."""
        files = {"server.crt": self.certificate, "server.key": self.key, "root.crt": self.authority}
        for name, source in files.items():
            target = data / name
            target.touch(mode=0o600)
            target.write_bytes(source.read_bytes())
            own(target)
        return {
            "ssl": True,
            "ssl_cert_file": "server.crt",
            "ssl_key_file": "server.key",
            "ssl_ca_file": "root.crt",
        }


def issue(folder: Path) -> Certificates:
    """A new authority, with a server's certificate and that of a client, which it has signed."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: two authorities of one name are told apart by a failed signature only.
    authority_name = _name(f"headrace test authority {secrets.token_hex(4)}")
    authority = _builder(authority_name, authority_name, authority_key).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    key = ec.generate_private_key(ec.SECP256R1())
    server = _builder(_name("localhost"), authority_name, key).add_extension(
        x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        ),
        critical=False,
    )
    client_key = ec.generate_private_key(ec.SECP256R1())
    client = _builder(_name("app"), authority_name, client_key)
    made = Certificates(
        folder / "authority.crt",
        folder / "server.crt",
        folder / "server.key",
        folder / "client.crt",
        folder / "client.key",
    )
    made.authority.write_bytes(_pem(authority.sign(authority_key, hashes.SHA256())))
    made.certificate.write_bytes(_pem(server.sign(authority_key, hashes.SHA256())))
    made.client_certificate.write_bytes(_pem(client.sign(authority_key, hashes.SHA256())))
    _write_key(made.key, key)
    _write_key(made.client_key, client_key)
    return made


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )
