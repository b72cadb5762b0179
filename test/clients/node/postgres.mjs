// postgres.js: tagged queries, its helper for many rows, transactions, listen.
import assert from 'node:assert/strict';
import postgres from 'postgres';

const sql = postgres(process.env.DATABASE_URL, { max: 4 });
const rows = (id) => [...Array(20).keys()].map((i) => ({ tenant_id: i, id, note: `note ${i}`, tags: ['a', 'b'] }));

let r = await sql`INSERT INTO items ${sql(rows(1), 'tenant_id', 'id', 'note')} RETURNING tenant_id`;
assert.equal(r.count, 20);
assert.deepEqual([...(await sql`SELECT note, amount FROM items WHERE tenant_id = ${7} AND id = ${1}`)], [{ note: 'note 7', amount: null }]);
r = await sql`SELECT tenant_id FROM items WHERE tenant_id IN ${sql([3, 5, 11])} ORDER BY tenant_id`;
assert.deepEqual(r.map((x) => x.tenant_id), ['3', '5', '11']);
assert.equal((await sql`UPDATE items SET ${sql({ note: 'new', amount: '2.50' }, 'note', 'amount')} WHERE tenant_id >= ${10}`).count, 10);
assert.equal((await sql`SELECT sum(amount) AS s FROM items`)[0].s, '25.00');
await assert.rejects(sql`INSERT INTO items (tenant_id, id) VALUES (${3}, 1)`, { code: '23505' });

// Transactions over several shards: one is taken back by an error of ours, one
// keeps what is outside of its savepoint.
await assert.rejects(sql.begin(async (tx) => {
  for (const x of rows(2)) await tx`INSERT INTO items ${tx(x, 'tenant_id', 'id', 'note')}`;
  throw new Error('no');
}), { message: 'no' });
await sql.begin(async (tx) => {
  await tx`INSERT INTO items ${tx(rows(2), 'tenant_id', 'id', 'note')}`;
  await tx.savepoint(async (sp) => {
    await sp`DELETE FROM items`;
    throw new Error('back');
  }).catch((e) => assert.equal(e.message, 'back'));
  // Pipelined.
  const counts = await Promise.all([1, 2].map((id) => tx`SELECT count(*)::int AS n FROM items WHERE id = ${id}`));
  assert.deepEqual(counts.map((x) => x[0].n), [20, 20]);
});

const read = [];
for await (const part of sql`SELECT tenant_id, id FROM items ORDER BY tenant_id, id`.cursor(9)) read.push(...part.map((x) => `${x.tenant_id}.${x.id}`));
assert.deepEqual(read, [...Array(40).keys()].map((i) => `${i >> 1}.${1 + (i & 1)}`));

let tell;
const told = new Promise((resolve) => (tell = resolve));
await sql.listen('news', tell);
await sql.notify('news', 'hello');
assert.equal(await told, 'hello');
await sql.end();
console.log('ok');
