"""Addresses show where they lead and never what opens the door."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.sources.mysql.session.address import MysqlAddress, SslMode

SECRET = "hunter2 %&/?#@:ü"
CODED = "hunter2%20%25%26%2F%3F%23%40%3A%C3%BC"
URL = f"mysql://ann:{CODED}@db.example:3307/shop?ssl-mode=VERIFY_IDENTITY&ssl-ca=%2Fetc%2Fca.pem"
ADDRESSES = [
    URL,
    "mysql://ann@db.example",
    "MariaDB://ann:@db.example:3307/",
    "mysql://ann@[::1]:3307/shop",
    "mysql://ann@[fe80::1%25eth0]/shop",
    "mysql://ann@%2Frun%2Fmysqld%2Fmysqld.sock/shop",
    "mariadb://ann@localhost/?socket=/run/mysqld/mysqld.sock",
    "mysql://a%40b@db?ssl_mode=disabled&get-server-public-key=1&connect-timeout=3",
    "mysql://ann@db?ssl-cert=/c&ssl-key=/k&ssl-mode=required&defaults-file=/etc/ann.cnf",
    "mysql://ann@db?ssl-capath=/etc/ssl/certs&server-public-key-path=/k",
]


def test_every_part_of_an_address_is_read() -> None:
    address = MysqlAddress.parse(URL)
    assert (address.user, address.password, address.host, address.port) == ("ann", SECRET, "db.example", 3307)
    assert address.database == "shop"
    assert (address.tls.mode, address.tls.ca) == (SslMode.VERIFY_IDENTITY, "/etc/ca.pem")


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_reads_back_as_itself_and_without_its_secrets(text: str) -> None:
    address = MysqlAddress.parse(text)
    assert MysqlAddress.parse(address.text) == address
    assert pickle.loads(pickle.dumps(address)) == address
    bare = MysqlAddress.parse(address.without_secrets())
    assert bare.password is None
    assert bare.with_password({"MYSQL_PWD": address.password or ""}).safe() == address.safe()


def test_an_address_shows_no_password() -> None:
    address = MysqlAddress.parse(URL)
    assert address.safe() == "ann@db.example:3307/shop"
    for shown in (repr(address), str(address), f"{address}", repr([address]), address.without_secrets()):
        assert "hunter2" not in shown


def test_no_database_need_be_named_and_a_socket_has_no_host() -> None:
    assert MysqlAddress.parse("mysql://ann@db").database is None
    address = MysqlAddress.parse("mysql://ann@/?socket=/run/s")
    assert (address.socket, address.safe()) == ("/run/s", "ann@/run/s/")
    assert MysqlAddress.parse("mysql://ann@%2Frun%2Fs/") == address
    assert MysqlAddress.parse("mysql://ann@[::1]/").safe() == "ann@[::1]:3306/"


@pytest.mark.parametrize(
    "text",
    [
        "mysql://ann:hunter2%zz@db/shop",
        "mysql://ann:hunter2%ff@db/shop",
        "mysql://ann:hunter2@[db/shop",
        "mysql://ann:hunter2#@db/shop",
        "mysql://ann:hunter2/x@db/shop",
        "mysql://ann:123/hunter2@db/shop",
        "mysql://ann:p@hunter2@db/shop",
        "mysql://ann:hunter2@db:port/shop",
        "mysql://ann:hunter2@db:99999/shop",
        "mysql://ann:hunter2@db,db2/shop",
        "mysql://ann:hunter2@/shop",
        "mysql://:hunter2@db/shop",
        "mysql://hunter2",
        "mysql://ann:hunter2%00@db/",
        "mysql://ann:hunter2@db/a/b",
        "mysql://ann:hunter2@db/?socket=relative",
        "mysql://ann:hunter2@db/?socket=/run/s",
        "postgresql://ann:hunter2@db/shop",
        "hunter2",
    ],
)
def test_a_malformed_address_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        MysqlAddress.parse(text)
    assert caught.value.code == "MY_ADDRESS_MALFORMED"
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "query",
    [
        "hunter2@db",
        "hunter2=1",
        "ssl-mode=hunter2",
        "ssl-mode=REQUIRED&ssl_mode=REQUIRED",
        "ssl-ca=/ca&ssl-mode=REQUIRED",
        "ssl-ca=/ca&ssl-mode=DISABLED",
        "ssl-key=/k",
        "connect-timeout=hunter2",
        "connect-timeout=0",
        "get-server-public-key=hunter2",
    ],
)
def test_an_option_that_nobody_knows_or_that_contradicts_another_is_refused(query: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        MysqlAddress.parse(f"mysql://ann@db:99?{query}")
    assert caught.value.code == "MY_ADDRESS_OPTION"
    assert "hunter2" not in str(caught.value)


def test_who_names_an_authority_has_the_certificate_verified() -> None:
    assert MysqlAddress.parse("mysql://ann@db").tls.mode is SslMode.PREFERRED
    assert MysqlAddress.parse("mysql://ann@db?ssl-ca=/ca").tls.mode is SslMode.VERIFY_CA


def test_a_password_comes_from_the_url_then_the_environment_then_the_named_file(tmp_path: Path) -> None:
    file = tmp_path / "my.cnf"
    file.write_text(
        '!include /x\n[mysqld]\nskip-log-bin\n[client]\nuser=eve\npassword = "fi#le\\\\" # mine\n'
    )
    named = MysqlAddress.parse(f"mysql://ann@db/?defaults-file={file}")
    given = MysqlAddress.parse(f"mysql://ann:url@db/?defaults-file={file}")
    assert given.with_password({"MYSQL_PWD": "environment"}).password == "url"
    assert named.with_password({"MYSQL_PWD": "environment"}).password == "environment"
    assert named.with_password({}).password == "fi#le\\"
    assert named.with_password({}).user == "ann"
    assert MysqlAddress.parse("mysql://ann@db").with_password({}).password is None


@pytest.mark.parametrize("content", [None, "hunter2\n", b"[client]\npassword=hunter2\xff\n"])
def test_an_option_file_that_cannot_be_read_is_refused_without_being_quoted(
    tmp_path: Path, content: str | bytes | None
) -> None:
    file = tmp_path / "my.cnf"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(HeadraceError) as caught:
        MysqlAddress.parse(f"mysql://ann@db/?defaults-file={file}").with_password({})
    assert caught.value.code == "MY_OPTION_FILE"
    assert "hunter2" not in str(caught.value)
