import postgres from 'postgres'
import { config, key, run, want } from './run.mjs'

const withKey = await key()
const sql = postgres({ ...config, max: 4, onnotice: () => {} })
await run({
  async tables () {
    await sql`DROP TABLE IF EXISTS p, doc`
    await sql.unsafe('CREATE TABLE p (k bigint, id bigint, note text, price numeric(10,2), at timestamptz, PRIMARY KEY (k, id))' + withKey)
    await sql`CREATE TABLE doc (id serial PRIMARY KEY, body jsonb, tags text[], raw bytea, big bigint)`
  },
  async helpers () {
    const rows = Array.from({ length: 200 }, (_, i) => ({ k: i % 10, id: i, note: `n${i}`, price: i / 4 }))
    want((await sql`INSERT INTO p ${sql(rows, 'k', 'id', 'note', 'price')} RETURNING id`).length, 200)
    want(await sql`SELECT ${sql(['id', 'note'])} FROM p WHERE k = ${3} AND id IN ${sql([3, 13])} ORDER BY id`, [{ id: '3', note: 'n3' }, { id: '13', note: 'n13' }])
    want((await sql`UPDATE p SET ${sql({ note: 'x' }, 'note')} WHERE k = ${4}`).count, 20)
    want((await sql`SELECT count(*)::int AS n FROM ${sql('p')} WHERE ${true ? sql`note = 'x'` : sql``}`)[0].n, 20)
    want((await sql`UPDATE p SET note = v.note FROM (VALUES ${sql([[1, 1, 'v1'], [2, 2, 'v2']])}) AS v (k, id, note) WHERE p.k = v.k::bigint AND p.id = v.id::bigint`).count, 2)
  },
  async types () {
    const d = new Date('2026-02-03T04:05:06.789Z')
    const [r] = await sql`INSERT INTO doc (body, tags, raw, big) VALUES (${sql.json({ a: [1, null] })}, ${['x', 'y,"z']}, ${Buffer.from([0, 255])}, ${'9007199254740993'}) RETURNING *, ${d}::timestamptz AS at, ${null}::int AS nil, ${true} AS yes`
    want([r.id, r.body, r.tags, [...r.raw], r.big, r.at, r.nil, r.yes], [1, { a: [1, null] }, ['x', 'y,"z'], [0, 255], '9007199254740993', d, null, true])
  },
  async pipelines () {
    const got = await Promise.all(Array.from({ length: 1000 }, (_, i) => sql`SELECT note, ${i}::int AS i FROM p WHERE k = ${i % 10} AND id = ${i % 200}`))
    want(got.every((r, i) => r[0].i === i), true)
    const mixed = await Promise.all(Array.from({ length: 90 }, (_, i) => i % 3 ? sql`SELECT count(*)::int AS n FROM p` : sql`SELECT 1 / ${i % 2 ? 0 : 1} AS n`.catch(e => [{ n: e.code }])))
    want(mixed.map(r => r[0].n).slice(0, 6), [1, 200, 200, '22012', 200, 200])
  },
  async transactions () {
    await sql.begin('ISOLATION LEVEL REPEATABLE READ', async t => {
      await t`INSERT INTO p VALUES (1, 1000, 'tx')`
      await t.savepoint(async s => { await s`INSERT INTO p VALUES (1, 1000, 'tx')` }).catch(e => want(e.code, '23505'))
      want(await t.begin === undefined, true)
    })
    await sql.begin(t => [t`INSERT INTO p VALUES (2, 1000, 'a')`, t`INSERT INTO p VALUES (3, 1000, 'b')`])
    await sql.begin(async t => { await t`DELETE FROM p`; throw new Error('undone') }).catch(() => {})
    want((await sql`SELECT count(*)::int AS n FROM p WHERE id = 1000`)[0].n, 3)
    await sql`DELETE FROM p WHERE id = 1000`
  },
  async cursors () {
    let n = 0
    for await (const rows of sql`SELECT id FROM p ORDER BY id`.cursor(33)) n += rows.length
    want(n, 200)
    await sql`SELECT id FROM p WHERE k = 1`.cursor(5, rows => sql.CLOSE)
    await sql`SELECT id FROM p`.forEach(() => n++)
    want(n, 400)
  },
  async copies () {
    const w = await sql`COPY p (k, id, note) FROM STDIN`.writable()
    for (let i = 0; i < 3000; i++) w.write(`${i % 10}\t${5000 + i}\tc\n`)
    await new Promise((resolve, reject) => w.on('finish', resolve).on('error', reject).end())
    let text = ''
    for await (const c of await sql`COPY (SELECT id FROM p WHERE id >= 5000 ORDER BY id) TO STDOUT`.readable()) text += c
    want([text.split('\n').length, text.slice(0, 5)], [3001, '5000\n'])
    want((await sql`DELETE FROM p WHERE id >= 5000`).count, 3000)
  },
  async describes () {
    const d = await sql`SELECT note, price FROM p WHERE k = ${1} AND id = ${2}`.describe()
    want([d.types, d.columns.map(c => c.name)], [[20, 20], ['note', 'price']])
  },
  async listens () {
    let told
    const heard = new Promise(resolve => { told = resolve })
    const l = await sql.listen('ch', told)
    await sql.notify('ch', 'hello')
    want(await heard, 'hello')
    await l.unlisten()
  },
  async cancels () {
    const q = sql`SELECT pg_sleep(30)`
    setTimeout(() => q.cancel(), 300)
    want(await q.catch(e => e.code), '57014')
    want((await sql`SELECT 1 AS one`)[0].one, 1)
  },
  async simple () { want((await sql`SELECT 1 AS a; SELECT 2 AS b`.simple()).map(r => r[0]), [{ a: 1 }, { b: 2 }]) },
  async dynamicSchemas () {
    await sql`CREATE SCHEMA IF NOT EXISTS other`
    await sql`CREATE TABLE IF NOT EXISTS ${sql('other.things')} (id int PRIMARY KEY)`
    await sql`INSERT INTO ${sql('other.things')} ${sql({ id: 1 })} ON CONFLICT DO NOTHING`
    const o = postgres({ ...config, connection: { search_path: 'other,public', application_name: 'o' }, prepare: false })
    want((await o`SELECT id FROM things`).length, 1)
    await o.end()
    await sql`DROP SCHEMA other CASCADE`
  },
  async reserved () {
    const r = await sql.reserve()
    await r`SET statement_timeout = '1234ms'`
    want((await r`SHOW statement_timeout`)[0].statement_timeout, '1234ms')
    r.release()
  },
  async errors () {
    want(await sql`INSERT INTO p VALUES (1, 1, 'again')`.catch(e => [e.code, e.constraint_name, e.table_name, e.schema_name]), ['23505', 'p_pkey', 'p', 'public'])
    want(await sql`SELECT ${'x'}::int`.catch(e => e.code), '22P02')
    want(await sql`SELECT * FROM nowhere`.catch(e => [e.code, e.position]), ['42P01', '15'])
  },
  async changesUnderPreparedStatements () {
    for (let i = 0; i < 6; i++) await sql`SELECT * FROM doc WHERE id = ${1}`
    await sql`ALTER TABLE doc ADD COLUMN more int DEFAULT 7`
    want((await sql`SELECT * FROM doc WHERE id = ${1}`.catch(() => sql`SELECT * FROM doc WHERE id = ${1}`))[0].more, 7)
  }
}, () => sql.end())
