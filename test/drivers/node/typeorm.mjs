import 'reflect-metadata'
import { DataSource, EntitySchema, Table } from 'typeorm'
import { config, run, want } from './run.mjs'

const User = new EntitySchema({
  name: 'tuser',
  columns: { id: { type: 'int', primary: true, generated: true }, name: { type: 'varchar', unique: true }, tags: process.env.PLAIN ? { type: 'simple-json', nullable: true } : { type: 'text', array: true, nullable: true }, made: { type: 'timestamptz', createDate: true }, version: { type: 'int', version: true } },
  relations: { posts: { type: 'one-to-many', target: 'tpost', inverseSide: 'user' } }
})
const Post = new EntitySchema({
  name: 'tpost',
  columns: { id: process.env.PLAIN ? { type: 'int', primary: true, generated: true } : { type: 'uuid', primary: true, generated: 'uuid' }, title: { type: 'varchar' } },
  relations: { user: { type: 'many-to-one', target: 'tuser', inverseSide: 'posts', onDelete: 'CASCADE' } }
})
class First1700000000000 {
  name = 'First1700000000000'
  async up (q) {
    await q.createTable(new Table({ name: 'tmigrated', columns: [{ name: 'id', type: 'int', isPrimary: true, isGenerated: true, generationStrategy: 'increment' }, { name: 'v', type: 'text' }] }))
    await q.query('CREATE INDEX tmigrated_v ON tmigrated (v)')
  }

  async down (q) { await q.dropTable('tmigrated') }
}
const db = new DataSource({ type: 'postgres', host: config.host, port: config.port, username: config.user, database: config.database, entities: [User, Post], migrations: [First1700000000000], installExtensions: true })
await run({
  async connects () { await db.initialize() },
  async synchronizes () { await db.synchronize() },
  async synchronizesAgain () { want((await db.driver.createSchemaBuilder().log()).upQueries.map(q => q.query), []) },
  async migrates () { want((await db.runMigrations()).length, 1); want((await db.runMigrations()).length, 0) },
  async saves () {
    const u = await db.getRepository(User).save({ name: 'a', tags: ['x'] })
    await db.getRepository(Post).save([{ title: 'p', user: u }, { title: 'q', user: u }])
    want((await db.getRepository(User).find({ relations: { posts: true }, where: { name: 'a' } }))[0].posts.length, 2)
  },
  async upserts () { await db.getRepository(User).upsert({ name: 'a', tags: ['y'] }, ['name']); want((await db.getRepository(User).findOneBy({ name: 'a' })).tags, ['y']) },
  async builds () { want(await db.getRepository(Post).createQueryBuilder('p').innerJoin('p.user', 'u').where('u.name = :n', { n: 'a' }).orderBy('p.title').getCount(), 2) },
  async transactions () {
    await db.transaction('SERIALIZABLE', async m => { await m.getRepository(User).save({ name: 'tx' }) })
    await db.transaction(async m => { await m.getRepository(User).save({ name: 'no' }); throw new Error('back') }).catch(e => want(e.message, 'back'))
    want(await db.getRepository(User).count(), 2)
  },
  async locks () { await db.transaction(async m => { await m.getRepository(User).findOne({ where: { name: 'a' }, lock: { mode: 'pessimistic_write' } }) }) },
  async streams () { const s = await db.getRepository(User).createQueryBuilder('u').getRawMany(); want(s.length, 2) },
  async deletes () { await db.getRepository(User).delete({ name: 'a' }); want(await db.getRepository(Post).count(), 0) },
  async migratesBack () { await db.undoLastMigration() },
  async dropsSchema () { await db.dropDatabase() }
}, () => db.isInitialized && db.destroy())
