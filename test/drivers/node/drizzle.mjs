import { mkdirSync, writeFileSync } from 'node:fs'
import { eq, sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import { migrate } from 'drizzle-orm/node-postgres/migrator'
import { integer, jsonb, pgTable, serial, text } from 'drizzle-orm/pg-core'
import pg from 'pg'
import { config, run, want } from './run.mjs'

mkdirSync('migrations/meta', { recursive: true })
const texts = [
  'CREATE TABLE "dusers" ("id" serial PRIMARY KEY NOT NULL, "name" text NOT NULL, "data" jsonb, CONSTRAINT "dusers_name_unique" UNIQUE("name"));--> statement-breakpoint\nCREATE TABLE "dposts" ("id" serial PRIMARY KEY NOT NULL, "author" integer);--> statement-breakpoint\nDO $$ BEGIN\n ALTER TABLE "dposts" ADD CONSTRAINT "dposts_author_fk" FOREIGN KEY ("author") REFERENCES "public"."dusers"("id") ON DELETE cascade ON UPDATE no action;\nEXCEPTION\n WHEN duplicate_object THEN null;\nEND $$;',
  'ALTER TABLE "dusers" ADD COLUMN "age" integer DEFAULT 1;--> statement-breakpoint\nCREATE INDEX IF NOT EXISTS "dusers_age" ON "dusers" USING btree ("age");'
]
texts.forEach((t, i) => writeFileSync(`migrations/000${i}_m.sql`, t))
writeFileSync('migrations/meta/_journal.json', JSON.stringify({ version: '7', dialect: 'postgresql', entries: texts.map((_, i) => ({ idx: i, version: '7', when: 1700000000000 + i, tag: `000${i}_m`, breakpoints: true })) }))

const users = pgTable('dusers', { id: serial('id').primaryKey(), name: text('name').notNull().unique(), data: jsonb('data'), age: integer('age').default(1) })
const posts = pgTable('dposts', { id: serial('id').primaryKey(), author: integer('author').references(() => users.id) })
const pool = new pg.Pool(config)
const db = drizzle(pool)
await run({
  async migrates () { await migrate(db, { migrationsFolder: 'migrations' }) },
  async migratesAgain () { await migrate(db, { migrationsFolder: 'migrations' }) },
  async inserts () { want(await db.insert(users).values([{ name: 'a', data: { x: 1 } }, { name: 'b' }]).returning({ id: users.id }), [{ id: 1 }, { id: 2 }]) },
  async upserts () { want((await db.insert(users).values({ name: 'a', age: 7 }).onConflictDoUpdate({ target: users.name, set: { age: 7 } }).returning())[0].age, 7) },
  async joins () { await db.insert(posts).values({ author: 1 }); want((await db.select().from(posts).leftJoin(users, eq(users.id, posts.author)))[0].dusers.name, 'a') },
  async transactions () {
    await db.transaction(async t => {
      await t.update(users).set({ age: sql`${users.age} + 1` }).where(eq(users.name, 'b'))
      await t.transaction(async s => { await s.delete(users); s.rollback() }).catch(() => {})
    }, { isolationLevel: 'repeatable read' })
    want((await db.select({ age: users.age }).from(users).where(eq(users.name, 'b')))[0].age, 2)
  },
  async prepared () { const p = db.select().from(users).where(eq(users.name, sql.placeholder('n'))).prepare('byname'); want((await p.execute({ n: 'a' })).length, 1); want((await p.execute({ n: 'b' })).length, 1) },
  async counts () { want(await db.$count(users), 2) },
  async deletes () { await db.delete(users).where(eq(users.id, 1)); want(await db.$count(posts), 0) }
}, () => pool.end())
