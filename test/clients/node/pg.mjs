// node-postgres: CRUD, parameters, transactions over shards, a cursor.
import assert from 'node:assert/strict';
import pg from 'pg';
import Cursor from 'pg-cursor';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const query = (text, values) => pool.query(text, values);

// Many rows in one INSERT, split by shard; the values come back.
const values = [], params = [];
for (let i = 0; i < 20; i++) {
  values.push(`($${2 * i + 1}, 1, $${2 * i + 2}, 1.5, '{a,b}')`);
  params.push(i, `note ${i}`);
}
let r = await query(`INSERT INTO items VALUES ${values.join(', ')} RETURNING tenant_id, note`, params);
assert.equal(r.rowCount, 20);
assert.deepEqual(new Set(r.rows.map((x) => x.tenant_id + x.note)), new Set([...Array(20).keys()].map((i) => `${i}note ${i}`)));

// One row, by parameters and by a named prepared statement, twice.
for (let i = 0; i < 2; i++) {
  r = await query({ name: 'one', text: 'SELECT note, amount, tags FROM items WHERE tenant_id = $1 AND id = $2', values: [7, 1] });
  assert.deepEqual(r.rows, [{ note: 'note 7', amount: '1.50', tags: ['a', 'b'] }]);
}
r = await query('SELECT tenant_id FROM items WHERE tenant_id = ANY($1::bigint[]) ORDER BY 1 DESC', [[3, 5, 11]]);
assert.deepEqual(r.rows.map((x) => x.tenant_id), ['11', '5', '3']);
r = await query('SELECT count(*)::int AS n, sum(amount) AS s FROM items WHERE note LIKE $1', ['note 1%']);
assert.deepEqual(r.rows, [{ n: 11, s: '16.50' }]);
r = await query('UPDATE items SET note = $1 WHERE id = $2', [null, 1]);
assert.equal(r.rowCount, 20);
await assert.rejects(query('INSERT INTO items (tenant_id, id) VALUES ($1, 1)', [3]), { code: '23505', constraint: 'items_pkey' });
await assert.rejects(query('SELECT nothing FROM items'), { code: '42703' });

// Transactions over several shards.
async function transaction(id, end) {
  const c = await pool.connect();
  try {
    await c.query('BEGIN');
    for (let i = 0; i < 20; i++) await c.query('INSERT INTO items (tenant_id, id) VALUES ($1, $2)', [i, id]);
    assert.equal((await c.query('SELECT count(*)::int AS n FROM items WHERE id = $1', [id])).rows[0].n, 20);
    return (await c.query(end)).command;
  } finally {
    c.release();
  }
}
assert.equal(await transaction(2, 'ROLLBACK'), 'ROLLBACK');
assert.equal(await transaction(2, 'COMMIT'), 'COMMIT');

// A cursor reads the rows of all shards in order, in portions.
const c = await pool.connect();
const cursor = c.query(new Cursor('SELECT tenant_id, id FROM items WHERE id < $1 ORDER BY tenant_id, id', [3]));
const read = [];
for (let rows; (rows = await cursor.read(7)).length > 0; ) {
  assert.ok(rows.length <= 7);
  read.push(...rows.map((x) => `${x.tenant_id}.${x.id}`));
}
await cursor.close();
assert.deepEqual(read, [...Array(40).keys()].map((i) => `${i >> 1}.${1 + (i & 1)}`));

// LISTEN on the same connection.
const told = new Promise((resolve) => c.on('notification', resolve));
await c.query('LISTEN news');
await query("SELECT pg_notify('news', $1)", ['hello']);
assert.equal((await told).payload, 'hello');
await c.query('UNLISTEN *');
c.release();
assert.equal((await query('DELETE FROM items WHERE id > 2')).rowCount, 0);
await pool.end();
console.log('ok');
