import { Kysely, Migrator, PostgresDialect, sql } from 'kysely'
import pg from 'pg'
import Cursor from 'pg-cursor'
import { config, run, want } from './run.mjs'

const db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool(config), cursor: Cursor }) })
const migrator = new Migrator({
  db,
  provider: {
    getMigrations: async () => ({
      one: {
        up: k => k.schema.createTable('person').addColumn('id', 'serial', c => c.primaryKey()).addColumn('name', 'varchar', c => c.unique().notNull()).addColumn('data', 'jsonb').execute(),
        down: k => k.schema.dropTable('person').execute()
      },
      two: {
        up: async k => { await k.schema.createTable('pet').addColumn('id', 'serial', c => c.primaryKey()).addColumn('owner', 'integer', c => c.references('person.id').onDelete('cascade')).execute(); await k.schema.createIndex('pet_owner').on('pet').column('owner').execute() },
        down: k => k.schema.dropTable('pet').execute()
      }
    })
  }
})
const done = r => { if (r.error) throw r.error; return r.results.map(x => x.status) }
await run({
  async migrates () { want(done(await migrator.migrateToLatest()), ['Success', 'Success']) },
  async migratesAgain () { want(done(await migrator.migrateToLatest()), []) },
  async introspects () { want((await db.introspection.getTables()).filter(t => ['person', 'pet'].includes(t.name)).map(t => t.name).sort(), ['person', 'pet']) },
  async inserts () { want((await db.insertInto('person').values([{ name: 'a', data: JSON.stringify({ x: 1 }) }, { name: 'b' }]).returning('id').execute()).length, 2) },
  async upserts () { want((await db.insertInto('person').values({ name: 'a' }).onConflict(c => c.column('name').doUpdateSet({ data: null })).returning('name').executeTakeFirst()).name, 'a') },
  async joins () {
    const p = await db.selectFrom('person').selectAll().where('name', '=', 'a').executeTakeFirstOrThrow()
    await db.insertInto('pet').values({ owner: p.id }).execute()
    want(await db.selectFrom('pet').innerJoin('person', 'person.id', 'pet.owner').select('person.name').execute(), [{ name: 'a' }])
  },
  async transactions () {
    await db.transaction().setIsolationLevel('serializable').execute(async t => { await t.updateTable('person').set({ name: 'c' }).where('name', '=', 'b').execute() })
    want((await db.selectFrom('person').select('name').orderBy('name').execute()).map(r => r.name), ['a', 'c'])
  },
  async streams () {
    const got = []
    for await (const r of db.selectFrom('person').select('name').orderBy('name').stream(1)) got.push(r.name)
    want(got, ['a', 'c'])
  },
  async locksWithTimeout () {
    await db.connection().execute(async c => {
      await sql`WITH t AS (SELECT set_config('lock_timeout', ${'60s'}, true)) SELECT pg_advisory_lock(1) FROM t`.execute(c)
      want((await sql`SELECT pg_advisory_unlock(1) AS was`.execute(c)).rows, [{ was: true }])
      want((await sql`SHOW lock_timeout`.execute(c)).rows, [{ lock_timeout: '0' }])
    })
  },
  async raw () { want((await sql`SELECT ${1}::int AS one`.execute(db)).rows, [{ one: 1 }]) },
  async migratesBack () { done(await migrator.migrateDown()); done(await migrator.migrateDown()) }
}, () => db.destroy())
