"""MariaDB as `sources.contract` wants it."""

from headrace.sources.contract.source import Source
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.source import MysqlSource

SOURCE: Source = MysqlSource(Flavour.MARIADB)
