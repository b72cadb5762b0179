"""asyncpg: its documented ways with a server."""
import asyncio
import os

import asyncpg

KEY = ""
tests = []


def test(f):
    tests.append(f)
    return f


async def connect():
    return await asyncpg.connect(host=os.environ["PGHOST"], port=int(os.environ["PGPORT"]), user=os.environ["PGUSER"], database=os.environ["PGDATABASE"], ssl=False)


async def fill(conn, n=100):
    await conn.execute("DROP TABLE IF EXISTS a")
    await conn.execute("CREATE TABLE a (k bigint, id bigint, note text, PRIMARY KEY (k, id))" + KEY)
    await conn.executemany("INSERT INTO a VALUES ($1, $2, $3)", [(i % 10, i, f"n{i}") for i in range(n)])


@test
async def cursor_iterates(conn):
    await fill(conn)
    async with conn.transaction():
        got = [r["id"] async for r in conn.cursor("SELECT id FROM a ORDER BY id", prefetch=7)]
    assert got == list(range(100))


@test
async def cursor_forward(conn):
    await fill(conn)
    for where, step in (("", 1), ("WHERE k = 3", 10)):
        async with conn.transaction():
            cur = await conn.cursor(f"SELECT id FROM a {where} ORDER BY id")
            first = (await cur.fetchrow())["id"]
            assert await cur.forward(3) == 3
            assert (await cur.fetchrow())["id"] == first + 4 * step
            assert [r["id"] for r in await cur.fetch(2)] == [first + 5 * step, first + 6 * step]


@test
async def prepared(conn):
    await fill(conn)
    st = await conn.prepare("SELECT note FROM a WHERE k = $1 AND id = $2")
    for i in range(20):
        assert await st.fetchval(i % 10, i) == f"n{i}"
    assert [p.name for p in st.get_parameters()] == ["int8", "int8"]


@test
async def copies(conn):
    await fill(conn, 0)
    await conn.copy_records_to_table("a", records=[(i % 7, i, "x") for i in range(1000)])
    assert await conn.fetchval("SELECT count(*) FROM a") == 1000
    out = bytearray()

    async def take(data):
        out.extend(data)
    await conn.copy_from_query("SELECT id FROM a WHERE id < $1 ORDER BY id", 3, output=take)
    assert bytes(out) == b"0\n1\n2\n"


@test
async def transactions_nest(conn):
    await fill(conn, 0)
    async with conn.transaction():
        await conn.execute("INSERT INTO a VALUES (1, 1, 'a')")
        try:
            async with conn.transaction():
                await conn.execute("INSERT INTO a VALUES (2, 1, 'b')")
                raise ValueError
        except ValueError:
            pass
    assert await conn.fetchval("SELECT count(*) FROM a") == 1


@test
async def isolation(conn):
    async with conn.transaction(isolation="repeatable_read", readonly=True):
        assert await conn.fetchval("SHOW transaction_isolation") == "repeatable read"


@test
async def listener(conn):
    got = asyncio.Queue()
    await conn.add_listener("ch", lambda *a: got.put_nowait(a[3]))
    other = await connect()
    await other.execute("NOTIFY ch, 'x'")
    await other.close()
    assert await asyncio.wait_for(got.get(), 30) == "x"


@test
async def timeout_cancels(conn):
    try:
        await conn.fetch("SELECT pg_sleep(30)", timeout=0.3)
        assert False
    except asyncio.TimeoutError:
        pass
    assert await conn.fetchval("SELECT 1") == 1


@test
async def own_types(conn):
    await conn.execute("DROP TYPE IF EXISTS apair")
    await conn.execute("CREATE TYPE apair AS (a int, b text)")
    assert tuple(await conn.fetchval("SELECT ROW(1, 'x')::apair")) == (1, "x")
    assert await conn.fetchval("SELECT $1::int[]", [1, 2]) == [1, 2]


@test
async def pool(conn):
    async with asyncpg.create_pool(host=os.environ["PGHOST"], port=int(os.environ["PGPORT"]), user=os.environ["PGUSER"], database=os.environ["PGDATABASE"], ssl=False, min_size=2, max_size=4) as p:
        got = await asyncio.gather(*(p.fetchval("SELECT $1::int", i) for i in range(20)))
    assert got == list(range(20))


@test
async def reset(conn):
    await conn.execute("SET statement_timeout = '5s'")
    await conn.reset()
    assert await conn.fetchval("SHOW statement_timeout") == "0"


async def main():
    global KEY
    conn = await connect()
    try:
        await conn.fetchval("SELECT count(*) FROM cleave.shards")
        KEY = " WITH (cleave.shard_key = 'k')"
    except asyncpg.PostgresError:
        pass
    await conn.close()
    for f in tests:
        conn = await connect()
        try:
            await f(conn)
            print("ok", f.__name__)
        except Exception as e:
            print("not ok %s: %s %s" % (f.__name__, type(e).__name__, str(e).replace("\n", " ")))
        conn.terminate()
    print("end")

asyncio.run(main())
