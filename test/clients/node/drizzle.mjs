// Drizzle over node-postgres.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import pg from 'pg';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
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

// A migration as drizzle-kit writes them, with what it guards by DO blocks; a second run and a second migration find it there.
const steps = (n) => [
  `DO $$ BEGIN\n CREATE TYPE "public"."mood" AS ENUM('happy', 'sad');\nEXCEPTION\n WHEN duplicate_object THEN null;\nEND $$;\n`,
  `CREATE TABLE IF NOT EXISTS "kinds" (\n\t"id" bigint PRIMARY KEY NOT NULL,\n\t"mood" "mood" DEFAULT 'happy' NOT NULL\n) WITH (cleave.reference = true);\n`,
  `ALTER TABLE "items" ADD COLUMN IF NOT EXISTS "kind" bigint;\n`,
  `DO $$ BEGIN\n ALTER TABLE "items" ADD CONSTRAINT "items_kind_kinds_id_fk" FOREIGN KEY ("kind") REFERENCES "public"."kinds"("id") ON DELETE no action ON UPDATE no action;\nEXCEPTION\n WHEN duplicate_object THEN null;\nEND $$;\n`,
  `DO $$ BEGIN\n IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_name = 'items' AND column_name = 'step${n}') THEN\n  ALTER TABLE "items" ADD COLUMN "step${n}" integer DEFAULT ${n};\n END IF;\nEND $$;`,
].join('--> statement-breakpoint\n');
const migration = async (...tags) => {
  mkdirSync('drizzle/meta', { recursive: true });
  tags.forEach((tag, i) => writeFileSync(`drizzle/${tag}.sql`, steps(i)));
  const entries = tags.map((tag, idx) => ({ idx, version: '7', when: 1700000000000 + idx, tag, breakpoints: true }));
  writeFileSync('drizzle/meta/_journal.json', JSON.stringify({ version: '7', dialect: 'postgresql', entries }));
  await migrate(db, { migrationsFolder: 'drizzle' });
};
await migration('0000_first');
await migration('0000_first');
await migration('0000_first', '0001_second');
assert.deepEqual((await db.execute(sql`SELECT count(*)::int AS n, sum(step1 + step0)::int AS s FROM items`)).rows, [{ n: 20, s: 20 }]);
await assert.rejects(db.execute(sql`UPDATE items SET kind = 1`), (e) => (e.cause ?? e).code === '23503');
await pool.end();
console.log('ok');
