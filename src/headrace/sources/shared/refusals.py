"""Errors of logins and statements that every server knows, each a condition that code reacts to.

    LockTimeout          the server ended our wait for a lock
    StatementCancelled   after its time, or by somebody's hand
    StatementOverruled   in favour of another: a deadlock, DDL that came between, a standby's recovery
    StatementRefused     the server denies it or cannot do it; `PrivilegeMissing`: for want of a privilege
    TableGone            a table or a column is not there any more

Each of these is about a statement and not about the connection, so code that reads one table may raise it for
that table. The other classes are about the login. The codes and hints stand where a source raises them.
"""

from __future__ import annotations

from typing import ClassVar

from headrace.core.errors import Definite, MaybeMisconfigured, Misconfigured, RightWithheld, Transient


class LockTimeout(Transient):
    """The server ended a statement of ours that waited for a lock."""


class StatementCancelled(Transient):
    """A statement of ours took more than its time, or somebody cancelled it."""


class StatementOverruled(Transient):
    """The server ended a statement of ours in favour of another transaction, of DDL, or of recovery."""


class StatementRefused(Misconfigured):
    """The server refuses a statement of ours."""


class PrivilegeMissing(StatementRefused, RightWithheld):
    """The server refuses a statement of ours because we lack a privilege."""

    codes: ClassVar[tuple[str, ...]] = ("MY_PRIVILEGE_MISSING", "PG_PRIVILEGE_MISSING")


class LoginWithheld(RightWithheld):
    """The server does not let this user in."""

    codes = (
        "MY_LOGIN_REFUSED",
        "MY_NOT_ADMITTED",
        "MY_PASSWORD_MISSING",
        "MY_PASSWORD_REFUSED",
        "PG_LOGIN_REFUSED",
        "PG_NOT_ADMITTED",
        "PG_PASSWORD_MISSING",
        "PG_PASSWORD_REFUSED",
        "PG_ROLE_UNKNOWN",
    )


class EncryptionRefused(RightWithheld):
    """The server offers no TLS, or not as the address asks for it: until a certificate is renewed, say."""

    codes = ("MY_TLS_REFUSED", "PG_TLS_REFUSED")


class TableGone(Definite):
    """A table is not there, or is another than the catalog said."""

    codes = ("MY_TABLE_GONE", "PG_TABLE_GONE")


class Unreachable(MaybeMisconfigured):
    """Nothing answers at the address."""

    codes = ("MY_UNREACHABLE", "PG_UNREACHABLE")
