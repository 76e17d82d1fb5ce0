"""Trust: the roles that may own a queue's objects, and the code that may be attached to them; proved before
use.

Reading or writing an object runs, as us, the code that its owner attached to it: triggers, rules, defaults,
policies, views. And the function of all triggers runs as its owner, for every session that writes a mirrored
table. So a role that may create a schema could make one of our name, and act as us. An existing queue must
pass two tests:

    whose    the schema, its tables and functions belong to a role that could act as us, or harm us, anyway
    what     tables with our columns and keys, as our own script makes them, and nothing on them that runs

    we are no superuser    ourselves, roles whose rights are ours too, roles that may act as us, superusers,
                           and the owner of the database
    we are a superuser     ourselves and other superusers

The right to create in the schema counts like ownership. The tests read only columns of the catalog, and no
object of the queue. Run them over every connection before the first statement about the queue, and with each
look at the tables (`creation.read_schema`).
"""

from __future__ import annotations

from headrace.core.errors import Misconfigured
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.upstream import EVENT_TABLES, Objects

_EVENT = ("id pg_lsn!, tx xid8!, relation oid!, leaf oid, diff int2!, row text", "")
# The columns of tables, with "!" if they are NOT NULL, and the columns of the primary key.
_SHARED = {
    "queue": (
        "name text!, incarnation uuid!, current int2!, version int4!, made timestamptz!, events _oid!, "
        "switched timestamptz!",
        "name",
    ),
    "tick": (
        "queue text!, tick int8!, taken timestamptz!, snapshot pg_snapshot!, nonce uuid!, attached json",
        "queue, tick",
    ),
    "reader": ("queue text!, lake text!, tick int8!, seen timestamptz!", "queue, lake"),
    "tracked": ("queue text!, lake text!, relation oid!, since timestamptz!", "queue, relation, lake"),
}


# The roles that control the queue, and the trusted ones among them. A superuser has all roles, so his
# membership proves nothing. Before 16 every member of a role may act as it.
_ROLES = """
WITH us AS (SELECT r.oid, r.rolsuper, d.datdba FROM pg_catalog.pg_roles r, pg_catalog.pg_database d
             WHERE r.rolname = current_user AND d.datname = pg_catalog.current_database()),
home AS (SELECT n.oid, n.nspowner, n.nspacl FROM pg_catalog.pg_namespace n WHERE n.nspname = %(schema)s),
creators AS (SELECT DISTINCT a.grantee FROM home h, pg_catalog.aclexplode(h.nspacl) a
              WHERE a.privilege_type = 'CREATE'),
wanted AS (SELECT w.* FROM unnest(%(tables)s::text[], %(columns)s::text[], %(keys)s::text[])
                           w(relname, columns, key)),
tables AS (SELECT c.oid, c.relname, c.relowner, c.relkind, c.relpersistence, c.relispartition,
                  c.relrowsecurity, w.columns, w.key
             FROM pg_catalog.pg_class c JOIN home h ON h.oid = c.relnamespace
             JOIN wanted w ON w.relname = c.relname),
sequences AS (SELECT c.oid, c.relname, c.relowner, c.relkind FROM pg_catalog.pg_class c
                JOIN home h ON h.oid = c.relnamespace WHERE c.relname = %(current)s),
functions AS (SELECT p.proname, p.proowner, p.oid, p.pronargs, p.prokind FROM pg_catalog.pg_proc p
                JOIN home h ON h.oid = p.pronamespace),
involved AS (SELECT nspowner AS oid FROM home UNION SELECT grantee FROM creators
             UNION SELECT relowner FROM tables UNION SELECT relowner FROM sequences
             UNION SELECT proowner FROM functions),
trusted AS (SELECT i.oid FROM us u, involved i JOIN pg_catalog.pg_roles r ON r.oid = i.oid
             WHERE i.oid = u.oid OR r.rolsuper OR NOT u.rolsuper AND (
                   i.oid IN (u.datdba, 'pg_database_owner'::pg_catalog.regrole::oid)
                   OR pg_catalog.pg_has_role(u.oid, i.oid, 'USAGE')
                   OR pg_catalog.pg_has_role(i.oid, u.oid, 'USAGE')
                   OR pg_catalog.pg_has_role(i.oid, u.oid, 'MEMBER WITH ADMIN OPTION')
                   OR pg_catalog.pg_has_role(i.oid, u.oid,
                      CASE WHEN pg_catalog.current_setting('server_version_num')::int4 >= 160000
                           THEN 'SET' ELSE 'MEMBER' END)))
"""

# The reasons against trust, each with the statement that mends it.
_FLAWS = """
SELECT format('the schema is owned by %%I', h.nspowner::pg_catalog.regrole),
       format('DROP SCHEMA %%I CASCADE, or, if that role is to be trusted, GRANT %%s TO %%I',
              %(schema)s, h.nspowner::pg_catalog.regrole, current_user)
  FROM home h WHERE h.nspowner NOT IN (SELECT oid FROM trusted)
UNION ALL
SELECT format('%%s may create in the schema', who.name),
       format('REVOKE CREATE ON SCHEMA %%I FROM %%s', %(schema)s, who.name)
  FROM creators c, LATERAL (SELECT CASE c.grantee WHEN 0 THEN 'PUBLIC'
                                   ELSE c.grantee::pg_catalog.regrole::text END) who(name)
 WHERE c.grantee NOT IN (SELECT oid FROM trusted)
UNION ALL
SELECT format('%%I is owned by %%s', t.relname, t.relowner::pg_catalog.regrole),
       format('DROP SCHEMA %%I CASCADE, or, if that role is to be trusted, GRANT %%s TO %%I',
              %(schema)s, t.relowner::pg_catalog.regrole, current_user)
  FROM (SELECT relname, relowner FROM tables UNION ALL SELECT relname, relowner FROM sequences) t
 WHERE t.relowner NOT IN (SELECT oid FROM trusted)
UNION ALL
SELECT format('the function %%I() is owned by %%s', f.proname, f.proowner::pg_catalog.regrole),
       format('DROP FUNCTION %%s CASCADE', f.oid::pg_catalog.regprocedure)
  FROM functions f WHERE f.proowner NOT IN (SELECT oid FROM trusted)
UNION ALL
SELECT format('the function %%s is none of a queue', f.oid::pg_catalog.regprocedure),
       format('DROP FUNCTION %%s', f.oid::pg_catalog.regprocedure)
  FROM functions f WHERE f.pronargs <> 0 OR f.prokind <> 'f' OR f.proname !~ '^(capture|guard)_'
UNION ALL
SELECT format('%%I is no ordinary table', t.relname), format('DROP SCHEMA %%I CASCADE', %(schema)s)
  FROM tables t
 WHERE (t.relkind, t.relpersistence) <> ('r', 'p') OR t.relispartition
    OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE t.oid IN (i.inhrelid, i.inhparent))
UNION ALL
SELECT format('%%I is no sequence', s.relname), format('DROP SCHEMA %%I CASCADE', %(schema)s)
  FROM sequences s WHERE s.relkind <> 'S'
UNION ALL
SELECT format('%%I cannot have the numbers of all event tables', s.relname),
       format('ALTER SEQUENCE %%I.%%I MINVALUE 0 MAXVALUE %%s', %(schema)s, s.relname, %(last)s)
  FROM sequences s JOIN pg_catalog.pg_sequence n ON n.seqrelid = s.oid
 WHERE n.seqmin > 0 OR n.seqmax < %(last)s
UNION ALL
SELECT format('%%I has other columns: %%s', t.relname, a.columns),
       format('DROP SCHEMA %%I CASCADE', %(schema)s)
  FROM tables t LEFT JOIN LATERAL (
       SELECT string_agg(concat(a.attname, ' ',
                  CASE WHEN y.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace THEN 'foreign ' END,
                  y.typname, CASE WHEN a.attnotnull THEN '!' END, a.attidentity, a.attgenerated,
                  CASE WHEN a.attcollation NOT IN (0, 100) THEN ' collated' END), ', ' ORDER BY a.attnum)
         FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
        WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped) a(columns) ON true
 WHERE a.columns IS DISTINCT FROM t.columns
UNION ALL
SELECT format('%%I has the trigger %%I', t.relname, g.tgname),
       CASE WHEN NOT g.tgisinternal
            THEN format('DROP TRIGGER %%I ON %%I.%%I', g.tgname, %(schema)s, t.relname)
            ELSE format('ALTER TABLE %%s DROP CONSTRAINT %%I',
                        (SELECT k.conrelid::pg_catalog.regclass FROM pg_catalog.pg_constraint k
                          WHERE k.oid = g.tgconstraint),
                        (SELECT k.conname FROM pg_catalog.pg_constraint k WHERE k.oid = g.tgconstraint)) END
  FROM tables t JOIN pg_catalog.pg_trigger g ON g.tgrelid = t.oid
 WHERE t.key <> '' OR g.tgname <> 'headrace_guard'
    OR NOT EXISTS (SELECT FROM functions f WHERE f.oid = g.tgfoid AND f.proname ~ '^guard_')
UNION ALL
SELECT format('%%I has the rule %%I', t.relname, r.rulename),
       format('DROP RULE %%I ON %%I.%%I', r.rulename, %(schema)s, t.relname)
  FROM tables t JOIN pg_catalog.pg_rewrite r ON r.ev_class = t.oid WHERE t.relkind = 'r'
UNION ALL
SELECT format('%%I has policies', t.relname),
       format('ALTER TABLE %%I.%%I DISABLE ROW LEVEL SECURITY', %(schema)s, t.relname)
  FROM tables t WHERE t.relrowsecurity
UNION ALL
SELECT format('%%I.%%I has a default', t.relname, a.attname),
       format('ALTER TABLE %%I.%%I ALTER %%I DROP DEFAULT', %(schema)s, t.relname, a.attname)
  FROM tables t JOIN pg_catalog.pg_attrdef f ON f.adrelid = t.oid
  JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = f.adnum
UNION ALL
SELECT format('%%I has the constraint %%I', t.relname, k.conname),
       format('ALTER TABLE %%I.%%I DROP CONSTRAINT %%I', %(schema)s, t.relname, k.conname)
  FROM tables t JOIN pg_catalog.pg_constraint k ON k.conrelid = t.oid WHERE k.contype NOT IN ('p', 'n')
UNION ALL
SELECT format('%%I has the index %%s', t.relname, i.indexrelid::pg_catalog.regclass),
       format('DROP INDEX %%s', i.indexrelid::pg_catalog.regclass)
  FROM tables t JOIN pg_catalog.pg_index i ON i.indrelid = t.oid
 WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR i.indisunique AND NOT i.indisprimary
    OR EXISTS (SELECT FROM unnest(i.indclass::oid[]) o(oid) JOIN pg_catalog.pg_opclass p USING (oid)
                WHERE p.opcnamespace <> 'pg_catalog'::pg_catalog.regnamespace)
UNION ALL
SELECT format('%%I has another primary key', t.relname), format('DROP SCHEMA %%I CASCADE', %(schema)s)
  FROM tables t LEFT JOIN LATERAL (
       SELECT string_agg(a.attname, ', ' ORDER BY k.place)
         FROM pg_catalog.pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
         JOIN pg_catalog.pg_attribute a ON a.attnum = k.attnum
        WHERE i.indrelid = t.oid AND i.indisprimary AND a.attrelid = t.oid) i(key) ON true
 WHERE coalesce(i.key, '') <> t.key
"""


def prove(connection: Session, objects: Objects) -> None:
    """Raise unless all existing objects of the queue may be read, written and called safely."""
    shapes = {**_SHARED, **dict.fromkeys(objects.event_names, _EVENT)}
    parameters = {
        "schema": objects.schema,
        "tables": list(shapes),
        "columns": [columns for columns, _ in shapes.values()],
        "current": objects.current_name,
        "last": EVENT_TABLES - 1,
        "keys": [key for _, key in shapes.values()],
    }
    flaws = query(connection, (_ROLES + _FLAWS).encode(), parameters, prepare=True)
    if flaws:
        raise Misconfigured(
            "QUEUE_UNTRUSTED",
            f'the queue in the schema "{objects.schema}" is not one that this user may trust',
            detail="; ".join(what for what, _ in flaws[:5]),
            hint=f"{flaws[0][1]}; or name another schema, which headrace may make: schema = ...",
        )
