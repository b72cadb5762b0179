import knex from 'knex'
import { config, run, want } from './run.mjs'

const db = knex({ client: 'pg', connection: config })
const source = {
  getMigrations: async () => ['1', '2'],
  getMigrationName: m => m,
  getMigration: async m => m === '1'
    ? {
        up: k => k.schema.createTable('kauthors', t => { t.increments(); t.string('name').unique(); t.jsonb('data'); t.timestamps(true, true) }),
        down: k => k.schema.dropTable('kauthors')
      }
    : {
        up: k => k.schema.createTable('kbooks', t => { t.increments(); t.integer('author').references('kauthors.id').onDelete('CASCADE'); t.enu('kind', ['a', 'b']); t.index(['kind']) }).alterTable('kauthors', t => { t.text('more').nullable(); t.string('name', 300).alter() }),
        down: k => k.schema.dropTable('kbooks').alterTable('kauthors', t => { t.dropColumn('more') })
      }
}
const migration = { migrationSource: source }
await run({
  async migrates () { want((await db.migrate.latest(migration))[1], ['1', '2']); want((await db.migrate.latest(migration))[1], []) },
  async lists () { want((await db.migrate.list(migration))[0].length, 2) },
  async inserts () { want((await db('kauthors').insert([{ name: 'a', data: { x: 1 } }, { name: 'b' }]).returning('id')).map(r => r.id), [1, 2]) },
  async upserts () { await db('kauthors').insert({ name: 'a', more: 'm' }).onConflict('name').merge(); want((await db('kauthors').where({ name: 'a' }).first()).more, 'm') },
  async joins () {
    await db('kbooks').insert({ author: 1, kind: 'a' })
    want(await db('kbooks as b').join('kauthors as a', 'a.id', 'b.author').select('a.name', 'b.kind'), [{ name: 'a', kind: 'a' }])
  },
  async transactions () {
    await db.transaction(async t => {
      await t('kauthors').insert({ name: 'tx' })
      await t.transaction(async s => { await s('kauthors').insert({ name: 'sub' }); throw new Error('back') }).catch(() => {})
    }, { isolationLevel: 'repeatable read' })
    want((await db('kauthors').orderBy('id').pluck('name')), ['a', 'b', 'tx'])
  },
  async batches () { want((await db.batchInsert('kauthors', Array.from({ length: 70 }, (_, i) => ({ name: 'n' + i })), 30).returning('id')).length, 70) },
  async columns () { want(Object.keys(await db('kauthors').columnInfo()).includes('more'), true); want(await db.schema.hasTable('kbooks'), true) },
  async truncates () { await db.raw('TRUNCATE kbooks, kauthors RESTART IDENTITY CASCADE'); want((await db('kauthors').count('* as n'))[0].n, '0') },
  async rollsBack () { await db.migrate.rollback(migration, true); want(await db.schema.hasTable('kauthors'), false) }
}, () => db.destroy())
