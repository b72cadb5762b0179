// Drizzle over node-postgres.
import assert from 'node:assert/strict';
import pg from 'pg';
import { drizzle } from 'drizzle-orm/node-postgres';
import { and, count, desc, eq, gte, inArray, sql } from 'drizzle-orm';
import { bigint, numeric, pgTable, text } from 'drizzle-orm/pg-core';

const items = pgTable('items', {
  tenant: bigint('tenant_id', { mode: 'number' }),
  id: bigint('id', { mode: 'number' }),
  note: text('note'),
  amount: numeric('amount'),
});
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const db = drizzle(pool);

const rows = (id) => [...Array(20).keys()].map((i) => ({ tenant: i, id, note: `note ${i}` }));
assert.equal((await db.insert(items).values(rows(1)).returning()).length, 20);
assert.deepEqual(await db.select().from(items).where(and(eq(items.tenant, 7), eq(items.id, 1))), [{ tenant: 7, id: 1, note: 'note 7', amount: null }]);
assert.deepEqual(await db.select({ t: items.tenant }).from(items).where(inArray(items.tenant, [3, 5, 11])).orderBy(desc(items.tenant)).limit(2), [{ t: 11 }, { t: 5 }]);
await db.update(items).set({ amount: '2.50' }).where(gte(items.tenant, 10));
assert.deepEqual(await db.select({ n: count(), s: sql`sum(${items.amount})` }).from(items), [{ n: 20, s: '25.00' }]);
await db.insert(items).values({ tenant: 3, id: 1, note: 'x' }).onConflictDoNothing();
await assert.rejects(db.transaction(async (tx) => {
  await tx.insert(items).values(rows(2));
  assert.equal(await tx.$count(items), 40);
  tx.rollback();
}));
await db.transaction(async (tx) => {
  await tx.insert(items).values(rows(3));
  await tx.delete(items).where(eq(items.id, 1));
});
assert.equal(await db.$count(items), 20);
await pool.end();
console.log('ok');
