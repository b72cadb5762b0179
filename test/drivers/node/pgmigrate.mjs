import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { runner } from 'node-pg-migrate'
import pg from 'pg'
import { Umzug } from 'umzug'
import { config, run, want } from './run.mjs'

const dir = mkdtempSync(tmpdir() + '/migrations-')
const steps = {
  '1_shop.js': ["pgm.createExtension('pgcrypto', { ifNotExists: true }); pgm.createType('size', ['s', 'l']); pgm.createTable('users', { id: 'id', name: { type: 'varchar(50)', notNull: true, unique: true }, size: 'size', made: { type: 'timestamptz', default: pgm.func('now()') } }, { comment: 'people' }); pgm.createTable('posts', { id: { type: 'bigint', primaryKey: true, sequenceGenerated: { precedence: 'BY DEFAULT' } }, user: { type: 'int', references: 'users', onDelete: 'CASCADE' }, body: 'jsonb' }); pgm.createIndex('posts', ['user', { name: 'id', sort: 'DESC' }]); pgm.sql('INSERT INTO {t} (name, size) VALUES ($pga$a$pga$, $pga$s$pga$)', { t: 'users' })",
    "pgm.dropTable('posts'); pgm.dropTable('users'); pgm.dropType('size')"],
  '2_more.js': ["pgm.addColumns('users', { n: { type: 'int', default: 1, check: 'n > 0' } }); pgm.renameColumn('users', 'n', 'm'); pgm.alterColumn('users', 'm', { type: 'bigint', notNull: true }); pgm.addConstraint('users', 'named', 'CHECK (name <> \\'\\')'); pgm.createView('names', {}, 'SELECT name FROM users'); pgm.createSequence('extra', { start: 5 }); pgm.createFunction('twice', [{ name: 'n', type: 'int' }], { returns: 'int', language: 'sql', behavior: 'IMMUTABLE' }, 'SELECT n * 2'); pgm.addTypeValue('size', 'm', { before: 'l' })",
    "pgm.dropFunction('twice', ['int']); pgm.dropSequence('extra'); pgm.dropView('names'); pgm.dropConstraint('users', 'named'); pgm.dropColumns('users', ['m'])"],
  '3_concurrent.js': ["pgm.noTransaction(); pgm.createIndex('users', 'made', { concurrently: true })", "pgm.noTransaction(); pgm.dropIndex('users', 'made', { concurrently: true })"]
}
for (const [name, [up, down]] of Object.entries(steps)) writeFileSync(`${dir}/${name}`, `exports.up = pgm => { ${up} }\nexports.down = pgm => { ${down} }\n`)
const go = (direction, count) => runner({ databaseUrl: config, dir, migrationsTable: 'pgmigrations', direction, count, log: () => {}, logger: { debug () {}, info () {}, warn () {}, error () {} }, singleTransaction: false })
const db = new pg.Client(config)
await db.connect()
const count = async sql => (await db.query(sql)).rows.length
await run({
  async migrates () { want((await go('up', Infinity)).map(m => m.name), ['1_shop', '2_more', '3_concurrent']) },
  async isUpToDate () { want(await go('up', Infinity), []) },
  async made () { want([await count("SELECT * FROM users WHERE name = 'a' AND m = 1"), await count('SELECT * FROM names'), (await db.query("SELECT nextval('extra') AS n, twice(4) AS t")).rows[0].t], [1, 1, 8]) },
  async migratesBack () { want((await go('down', 3)).length, 3); want(await count("SELECT * FROM pg_tables WHERE tablename = 'users'"), 0) },
  async locks () { want((await Promise.allSettled([go('up', 1), go('up', 1)])).some(r => r.status === 'fulfilled'), true); await go('down', 1).catch(() => {}) },
  async umzug () {
    await db.query('DROP TABLE IF EXISTS umzug, u1; CREATE TABLE umzug (name text PRIMARY KEY)')
    const storage = { logMigration: ({ name }) => db.query('INSERT INTO umzug VALUES ($1)', [name]), unlogMigration: ({ name }) => db.query('DELETE FROM umzug WHERE name = $1', [name]), executed: async () => (await db.query('SELECT name FROM umzug ORDER BY name')).rows.map(r => r.name) }
    const u = new Umzug({ migrations: [{ name: 'a', up: () => db.query('CREATE TABLE u1 (id int)'), down: () => db.query('DROP TABLE u1') }, { name: 'b', up: () => db.query('ALTER TABLE u1 ADD v text'), down: () => db.query('ALTER TABLE u1 DROP v') }], context: {}, storage, logger: undefined })
    want((await u.up()).length, 2)
    want((await u.down({ to: 0 })).length, 2)
    await db.query('DROP TABLE umzug')
  }
}, () => db.end())
