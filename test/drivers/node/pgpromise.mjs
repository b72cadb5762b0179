import pgPromise from 'pg-promise'
import { config, key, run, want } from './run.mjs'

const withKey = await key()
const pgp = pgPromise({ noWarnings: true })
const db = pgp(config)
const { ColumnSet, insert, update, concat } = pgp.helpers
const set = new ColumnSet(['k', 'id', { name: 'note', def: null }], { table: 'p' })
const mode = new pgp.txMode.TransactionMode({ tiLevel: pgp.txMode.isolationLevel.serializable, readOnly: true, deferrable: true })
await run({
  async tables () {
    await db.none('DROP TABLE IF EXISTS p; CREATE TABLE p (k bigint, id bigint, note text, PRIMARY KEY (k, id))' + withKey)
  },
  async inserts () {
    await db.none(insert(Array.from({ length: 500 }, (_, i) => ({ k: i % 10, id: i, note: `n'${i}` })), set))
    want(await db.one('SELECT count(*) AS n FROM p', [], r => Number(r.n)), 500)
  },
  async updates () {
    const rows = [{ k: 1, id: 1, note: 'a' }, { k: 2, id: 2, note: 'b' }]
    want(await db.result(update(rows, ['?k', '?id', 'note'], 'p', { tableAlias: 't' }) + ' WHERE v.k = t.k AND v.id = t.id', [], r => r.rowCount), 2)
  },
  async formats () {
    want(await db.any('SELECT ${cols:name} FROM ${table:name} WHERE k = ${k} AND id IN (${ids:csv}) ORDER BY id', { cols: ['id', 'note'], table: 'p', k: 3, ids: [3, 13] }), [{ id: '3', note: "n'3" }, { id: '13', note: "n'13" }])
    want(await db.one("SELECT $1:json AS j, $2:raw AS r, $3 AS a, $4 AS d", [{ x: 1 }, '1 + 1', [1, [2]].flat(), true]), { j: '{"x":1}', r: 2, a: [1, 2], d: true })
  },
  async prepared () {
    const ps = new pgp.PreparedStatement({ name: 'one', text: 'SELECT note FROM p WHERE k = $1 AND id = $2' })
    for (let i = 10; i < 30; i++) want((await db.one(ps, [i % 10, i])).note, `n'${i}`)
  },
  async several () {
    want((await db.multi(concat([{ query: 'SELECT 1 AS a' }, { query: 'SELECT id FROM p WHERE k = $1 ORDER BY id LIMIT 2', values: [3] }]))).map(r => r.length), [1, 2])
    want((await db.multiResult('SELECT 1; DELETE FROM p WHERE k = -1')).map(r => r.command), ['SELECT', 'DELETE'])
  },
  async tasks () { want(await db.task(t => t.batch([t.one('SELECT 1 AS a'), t.any('SELECT * FROM p WHERE k = 1'), t.oneOrNone('SELECT 1 WHERE false')])).then(r => [r[0].a, r[1].length, r[2]]), [1, 50, null]) },
  async transactions () {
    await db.tx(async t => {
      await t.none("INSERT INTO p VALUES (1, 1000, 'x')")
      await t.tx(s => s.none("INSERT INTO p VALUES (1, 1000, 'x')")).catch(e => want(e.code, '23505'))
      await t.none("INSERT INTO p VALUES (2, 1000, 'x')")
    })
    want((await db.any('DELETE FROM p WHERE id = 1000 RETURNING k')).length, 2)
    want(await db.tx({ mode }, t => t.none("INSERT INTO p VALUES (1, 1, '')")).catch(e => e.code), '25006')
  },
  async sequence () { want(await db.tx(t => t.sequence(i => i < 20 ? t.one('SELECT $1::int AS i', i) : undefined, { track: true })).then(r => r.length), 20) },
  async functions () {
    await db.none('CREATE OR REPLACE FUNCTION add(a int, b int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT a + b $$')
    want((await db.func('add', [1, 2]))[0].add, 3)
    await db.none('DROP FUNCTION add(int, int)')
  },
  async listens () {
    const c = await db.connect({ direct: true })
    const heard = new Promise(resolve => c.client.on('notification', m => resolve(m.payload)))
    await c.none('LISTEN $1:name', 'ch')
    await db.none("NOTIFY ch, 'hi'")
    want(await heard, 'hi')
    await c.done()
  }
}, () => pgp.end())
