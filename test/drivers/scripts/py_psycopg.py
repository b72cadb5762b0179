"""psycopg 3: its documented ways with a server, on whatever libpq's variables name."""
import asyncio
import sys
import threading
import traceback

import psycopg
from psycopg.rows import dict_row, namedtuple_row
from psycopg.types.json import Jsonb

tests = []


def test(f):
    tests.append(f)
    return f


ROUTER = False
KEY = ""


def connect(**kw):
    return psycopg.connect("", **kw)


def fill(conn, n=100):
    conn.execute("DROP TABLE IF EXISTS t")
    conn.execute("CREATE TABLE t (k bigint, id bigint, note text, PRIMARY KEY (k, id))" + KEY)
    with conn.cursor() as cur:
        cur.executemany("INSERT INTO t VALUES (%s, %s, %s)", [(i % 10, i, f"n{i}") for i in range(n)])
    conn.commit()


@test
def server_cursor():
    with connect() as conn:
        fill(conn)
        with conn.cursor("c") as cur:
            cur.execute("SELECT id, note FROM t ORDER BY id")
            assert cur.description[1].name == "note"
            assert cur.fetchone() == (0, "n0")
            assert [r[0] for r in cur.fetchmany(5)] == [1, 2, 3, 4, 5]
            assert len(cur.fetchall()) == 94


@test
def server_cursor_iterates():
    with connect() as conn:
        fill(conn, 1000)
        with conn.cursor("c") as cur:
            cur.itersize = 70
            cur.execute("SELECT id FROM t WHERE id >= %s ORDER BY id", (10,))
            assert [r[0] for r in cur] == list(range(10, 1000))


@test
def server_cursor_of_one_key():
    with connect() as conn:
        fill(conn)
        with conn.cursor("c", row_factory=dict_row) as cur:
            cur.execute("SELECT id, note FROM t WHERE k = 3 ORDER BY id")
            assert cur.fetchone() == {"id": 3, "note": "n3"}


@test
def server_cursor_scrolls():
    with connect() as conn:
        fill(conn)
        with conn.cursor("c", scrollable=True) as cur:
            cur.execute("SELECT id FROM t ORDER BY id")
            cur.scroll(50)
            assert cur.fetchone() == (50,)
            cur.scroll(-10)
            assert cur.fetchone() == (41,)
            cur.scroll(5, mode="absolute")
            assert cur.fetchone() == (5,)


@test
def server_cursor_with_hold():
    with connect() as conn:
        fill(conn)
        with conn.cursor("c", withhold=True) as cur:
            cur.execute("SELECT id FROM t ORDER BY id")
            conn.commit()
            assert len(cur.fetchall()) == 100


@test
def server_cursor_in_binary():
    with connect() as conn:
        fill(conn)
        with conn.cursor("c", binary=True) as cur:
            cur.execute("SELECT id, note FROM t ORDER BY id")
            assert cur.fetchmany(2) == [(0, "n0"), (1, "n1")]


@test
def server_cursor_steals():
    with connect() as conn:
        fill(conn)
        conn.execute("DECLARE s CURSOR FOR SELECT id FROM t ORDER BY id")
        with conn.cursor("s") as cur:
            assert cur.fetchmany(2) == [(0,), (1,)]


def copied(sql, binary):
    with connect() as conn:
        fill(conn)
        with conn.cursor() as cur, cur.copy(sql) as copy:
            if binary:
                copy.set_types(["int8", "text"])
            return sorted(copy.rows())


@test
def copy_out_of_a_table_in_binary():
    assert len(copied("COPY t (id, note) TO STDOUT (FORMAT binary)", True)) == 100


@test
def copy_out_of_a_query_in_binary():
    assert copied("COPY (SELECT id, note FROM t ORDER BY id LIMIT 2) TO STDOUT (FORMAT binary)", True) == [(0, "n0"), (1, "n1")]


@test
def copy_out_as_text():
    assert copied("COPY (SELECT id, note FROM t ORDER BY id LIMIT 2) TO STDOUT", False) == [("0", "n0"), ("1", "n1")]


@test
def copy_in():
    with connect() as conn:
        fill(conn, 0)
        for sql, types in (("COPY t FROM STDIN", None), ("COPY t FROM STDIN (FORMAT binary)", ["int8", "int8", "text"])):
            with conn.cursor() as cur:
                with cur.copy(sql) as copy:
                    if types:
                        copy.set_types(types)
                    for i in range(500):
                        copy.write_row((i % 7, i + (1000 if types else 0), None if i % 2 else "x\ty"))
                assert cur.rowcount == 500
        assert conn.execute("SELECT count(*), count(note) FROM t").fetchone() == (1000, 500)


@test
def copy_in_fails_and_the_connection_lives():
    with connect(autocommit=True) as conn:
        fill(conn, 0)
        try:
            with conn.cursor() as cur, cur.copy("COPY t FROM STDIN") as copy:
                copy.write("x\t1\tn\n")
        except psycopg.errors.InvalidTextRepresentation:
            pass
        assert conn.execute("SELECT 1").fetchone() == (1,)


@test
def pipeline():
    with connect() as conn:
        fill(conn)
        with conn.pipeline(), conn.cursor() as cur:
            a = conn.execute("SELECT note FROM t WHERE k = %s AND id = %s", (3, 3))
            b = conn.execute("SELECT count(*) FROM t")
            cur.execute("INSERT INTO t VALUES (1, 1000, 'p')")
            c = conn.execute("SELECT note FROM t WHERE k = 1 AND id = 1000")
            assert (a.fetchone(), b.fetchone(), c.fetchone()) == (("n3",), (100,), ("p",))


@test
def pipeline_with_an_error():
    with connect(autocommit=True) as conn:
        fill(conn)
        try:
            with conn.pipeline():
                conn.execute("INSERT INTO t VALUES (1, 2000, 'p')")
                conn.execute("SELECT 1/0")
                conn.execute("INSERT INTO t VALUES (1, 2001, 'p')")
        except psycopg.errors.DivisionByZero:
            pass
        assert conn.execute("SELECT count(*) FROM t WHERE id >= 2000").fetchone() == (0,)


@test
def transactions_nest():
    with connect(autocommit=True) as conn:
        fill(conn, 0)
        with conn.transaction():
            conn.execute("INSERT INTO t VALUES (1, 1, 'a')")
            try:
                with conn.transaction():
                    conn.execute("INSERT INTO t VALUES (2, 1, 'b')")
                    raise ValueError
            except ValueError:
                pass
            with conn.transaction() as tx:
                conn.execute("INSERT INTO t VALUES (3, 1, 'c')")
                raise psycopg.Rollback(tx)
        assert conn.execute("SELECT k FROM t").fetchall() == [(1,)]


@test
def two_phase():
    with connect() as conn:
        fill(conn, 0)
        xid = conn.xid(1, "gtrid", "bqual")
        conn.tpc_begin(xid)
        conn.execute("INSERT INTO t VALUES (1, 1, 'a')")
        conn.tpc_prepare()
        conn.tpc_rollback()


@test
def isolation_and_access():
    with connect() as conn:
        fill(conn, 1)
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.read_only = True
        conn.deferrable = False
        assert conn.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (1,)
        try:
            conn.execute("DELETE FROM t")
            assert False
        except psycopg.errors.ReadOnlySqlTransaction:
            pass


@test
def prepared_after_five():
    with connect(autocommit=True) as conn:
        fill(conn)
        for i in range(20):
            assert conn.execute("SELECT note FROM t WHERE k = %s AND id = %s", (i % 10, i)).fetchone() == (f"n{i}",)


@test
def prepared_statements_are_listed():
    with connect(autocommit=True) as conn:
        conn.execute("SELECT %s::int", (1,), prepare=True)
        assert conn.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (1,)


@test
def types_round_trip():
    import datetime
    import decimal
    import uuid
    import ipaddress
    values = [1, 2**40, 1.5, "ä", b"\x00\xff", True, None, decimal.Decimal("1.50"), datetime.date(2026, 11, 23), datetime.timedelta(days=1, seconds=5),
              datetime.datetime(2026, 11, 23, 1, 2, 3, 4, tzinfo=datetime.timezone.utc), uuid.UUID(int=5), [1, 2, 3], ["a", "b"], ipaddress.ip_address("10.0.0.1")]
    for binary in (False, True):
        with connect() as conn:
            for v in values:
                assert conn.cursor(binary=binary).execute("SELECT %s", (v,)).fetchone() == (v,), v
            assert conn.cursor(binary=binary).execute("SELECT %s", (Jsonb({"a": [1]}),)).fetchone() == ({"a": [1]},)


@test
def composite_and_enum():
    from psycopg.types.composite import CompositeInfo, register_composite
    from psycopg.types.enum import EnumInfo, register_enum
    import enum
    with connect(autocommit=True) as conn:
        conn.execute("DROP TYPE IF EXISTS pair; DROP TYPE IF EXISTS mood")
        conn.execute("CREATE TYPE pair AS (a int, b text)")
        conn.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
        info = CompositeInfo.fetch(conn, "pair")
        register_composite(info, conn)
        assert conn.execute("SELECT %s::pair", (info.python_type(1, "x"),)).fetchone()[0] == (1, "x")
        mood = enum.Enum("mood", ["sad", "ok"])
        register_enum(EnumInfo.fetch(conn, "mood"), conn, mood)
        assert conn.execute("SELECT 'ok'::mood").fetchone()[0] is mood.ok


@test
def notifies():
    with connect(autocommit=True) as conn, connect(autocommit=True) as other:
        conn.execute("LISTEN ch")
        got = []
        conn.add_notify_handler(got.append)
        other.execute("NOTIFY ch, 'hello'")
        conn.execute("SELECT 1")
        assert [n.payload for n in got] == ["hello"], got


@test
def cancels():
    with connect() as conn:
        timer = threading.Timer(0.3, conn.cancel)
        timer.start()
        try:
            conn.execute("SELECT pg_sleep(30)")
            assert False
        except psycopg.errors.QueryCanceled:
            pass
        finally:
            timer.join()


@test
def errors_have_diagnostics():
    with connect(autocommit=True) as conn:
        fill(conn)
        try:
            conn.execute("INSERT INTO t VALUES (1, 1, 'x')")
            assert False
        except psycopg.errors.UniqueViolation as e:
            assert (e.diag.table_name, e.diag.constraint_name) == ("t", "t_pkey")


@test
def executemany_returns():
    with connect() as conn:
        fill(conn, 0)
        with conn.cursor() as cur:
            cur.executemany("INSERT INTO t VALUES (%s, %s, 'x') RETURNING id", [(i, i) for i in range(5)], returning=True)
            got = []
            while True:
                got.append(cur.fetchone()[0])
                if not cur.nextset():
                    break
            assert got == [0, 1, 2, 3, 4]


@test
def stream():
    with connect() as conn:
        fill(conn)
        assert [r.id for r in conn.cursor(row_factory=namedtuple_row).stream("SELECT id FROM t ORDER BY id")] == list(range(100))


@test
def asynchronous():
    async def run():
        async with await psycopg.AsyncConnection.connect("") as conn:
            async with conn.cursor("c") as cur:
                await cur.execute("SELECT g FROM generate_series(1, 10) g")
                assert [r[0] async for r in cur] == list(range(1, 11))
    asyncio.run(run())


@test
def client_info():
    with connect() as conn:
        assert conn.info.encoding == "utf-8" and conn.info.server_version > 120000 and conn.info.backend_pid > 0
        assert conn.execute("SELECT current_database()").fetchone()[0] == conn.info.dbname


with connect(autocommit=True) as probe:
    try:
        probe.execute("SELECT count(*) FROM cleave.shards")
        ROUTER, KEY = True, " WITH (cleave.shard_key = 'k')"
    except psycopg.Error:
        pass
for f in tests:
    try:
        f()
        print("ok", f.__name__)
    except Exception as e:
        print("not ok %s: %s %s" % (f.__name__, type(e).__name__, str(e).replace("\n", " ")))
print("end")
