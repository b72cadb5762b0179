import pg from 'pg'
import Cursor from 'pg-cursor'
import { config, key, run, want } from './run.mjs'

const sharded = await key()
const c = new pg.Client(config)
await c.connect()
await c.query('DROP TABLE IF EXISTS n')
await c.query('CREATE TABLE n (k bigint, id bigint, note text, data jsonb, PRIMARY KEY (k, id))' + sharded)
await run({
  async prepared () {
    for (let i = 0; i < 50; i++) await c.query({ name: 'ins', text: 'INSERT INTO n VALUES ($1, $2, $3, $4)', values: [i % 10, i, 'n' + i, { i }] })
    want((await c.query({ name: 'sel', text: 'SELECT note, data FROM n WHERE k = $1 AND id = $2', values: [3, 13] })).rows, [{ note: 'n13', data: { i: 13 } }])
  },
  async cursor () {
    const cur = c.query(new Cursor('SELECT id FROM n ORDER BY id'))
    want((await cur.read(3)).map(r => r.id), ['0', '1', '2'])
    want((await cur.read(100)).length, 47)
    await cur.close()
  },
  async cursorClosedEarly () {
    const cur = c.query(new Cursor('SELECT id FROM n ORDER BY id'))
    await cur.read(3)
    await cur.close()
    want((await c.query('SELECT 1 AS one')).rows, [{ one: 1 }])
  },
  async severalStatements () {
    want((await c.query('SELECT 1 AS a; SELECT count(*)::int AS b FROM n')).map(r => r.rows[0]), [{ a: 1 }, { b: 50 }])
  },
  async notifications () {
    const got = new Promise(resolve => c.once('notification', m => resolve(m.payload)))
    await c.query('LISTEN ch')
    await c.query("NOTIFY ch, 'x'")
    want(await got, 'x')
  },
  async pool () {
    const pool = new pg.Pool({ ...config, max: 4 })
    want((await Promise.all(Array.from({ length: 20 }, (_, i) => pool.query('SELECT $1::int AS i', [i])))).map(r => r.rows[0].i), Array.from({ length: 20 }, (_, i) => i))
    await pool.end()
  },
  async statementTimeout () {
    const d = new pg.Client({ ...config, statement_timeout: 200 })
    await d.connect()
    const code = await d.query('SELECT pg_sleep(30)').then(() => '', e => e.code)
    await d.end()
    want(code, '57014')
  },
  async error () {
    const e = await c.query('INSERT INTO n VALUES (1, 1)').catch(e => e)
    want([e.code, e.table, e.constraint], ['23505', 'n', 'n_pkey'])
  }
}, () => c.end())
