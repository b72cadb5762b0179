import { EntitySchema, LockMode, MikroORM, raw } from '@mikro-orm/postgresql'
import { Migrator } from '@mikro-orm/migrations'
import { Migration1 } from './mikromigration.mjs'
import { config, run, want } from './run.mjs'

const Author = new EntitySchema({ name: 'Author', properties: { id: { type: 'number', primary: true }, name: { type: 'string', unique: true }, data: { type: 'json', nullable: true }, version: { type: 'number', version: true }, createdAt: { type: 'Date', defaultRaw: 'now()' }, books: { kind: '1:m', entity: 'Book', mappedBy: 'author' } } })
const Book = new EntitySchema({ name: 'Book', properties: { id: { type: 'number', primary: true }, title: { type: 'string', index: true }, price: { type: 'decimal', precision: 10, scale: 2, default: 1 }, author: { kind: 'm:1', entity: 'Author', deleteRule: 'cascade' }, tags: { kind: 'm:n', entity: 'Tag' } } })
const Tag = new EntitySchema({ name: 'Tag', properties: { id: { type: 'uuid', primary: true }, name: { type: 'string' }, mood: { enum: true, items: ['sad', 'ok'], nullable: true, nativeEnumName: 'tag_mood' } } })
const orm = await MikroORM.init({ host: config.host, port: config.port, user: config.user, dbName: config.database, entities: [Author, Book, Tag], extensions: [Migrator], debug: false, discovery: { warnWhenNoEntities: false }, allowGlobalContext: true,
  migrations: { migrationsList: [{ name: 'Migration1', class: Migration1 }], snapshot: false, silent: true } })
const fork = () => orm.em.fork()
await run({
  async creates () { await orm.schema.dropSchema(); await orm.schema.createSchema() },
  async hasNothingToUpdate () { want(await orm.schema.getUpdateSchemaSQL({ wrap: false, safe: true }), '') },
  async persists () {
    const em = fork()
    const a = em.create('Author', { name: 'a', data: { x: [1] }, books: Array.from({ length: 50 }, (_, i) => ({ title: 't' + i, tags: i < 3 ? [{ id: `00000000-0000-0000-0000-00000000000${i}`, name: 'g' + i, mood: 'ok' }] : [] })) })
    await em.persistAndFlush(a)
    const b = await fork().findOneOrFail('Author', { name: 'a' }, { populate: ['books', 'books.tags'] })
    want([b.id, b.data, b.books.length, b.books[0].tags[0].mood, b.version], [1, { x: [1] }, 50, 'ok', 1])
  },
  async strategies () { for (const strategy of ['select-in', 'joined']) want((await fork().find('Author', { books: { title: { $like: 't1%' } } }, { populate: ['books'], strategy, orderBy: { id: 1 }, limit: 5 }))[0].books.length, 50) },
  async changes () {
    const em = fork()
    const books = await em.find('Book', { id: { $lte: 20 } })
    for (const b of books) b.price = '2.50'
    await em.flush()
    want(await em.count('Book', { price: '2.50' }), 20)
    want(await em.nativeUpdate('Book', { price: '2.50' }, { price: '3' }), 20)
    want(await em.nativeDelete('Book', { title: 't49' }), 1)
    await em.upsert('Tag', { id: '00000000-0000-0000-0000-000000000001', name: 'new' })
    await em.upsertMany('Tag', [{ id: '00000000-0000-0000-0000-000000000001', name: 'newer' }, { id: '00000000-0000-0000-0000-000000000009', name: 'n' }])
    want(await em.count('Tag'), 4)
  },
  async optimisticLocks () {
    const [x, y] = [fork(), fork()]
    const [a, b] = [await x.findOne('Author', 1), await y.findOne('Author', 1)]
    a.name = 'b'
    await x.flush()
    b.name = 'c'
    want(await y.flush().then(() => 'none', e => e.name), 'OptimisticLockError')
  },
  async transactions () {
    await fork().transactional(async em => {
      const a = await em.findOne('Author', 1, { lockMode: LockMode.PESSIMISTIC_WRITE })
      a.name = 'locked'
      await em.transactional(async e => { e.create('Tag', { id: '00000000-0000-0000-0000-000000000001', name: 'twice' }); await e.flush() }).catch(e => want(e.name, 'UniqueConstraintViolationException'))
    })
    want(await fork().count('Author', { name: 'locked' }), 1)
  },
  async builders () {
    const q = fork().createQueryBuilder('Book', 'b').select(['b.author', raw('count(b.id) as n')]).groupBy('b.author').having('count(b.id) > ?', [1])
    want(Number((await q.execute())[0].n), 49)
    want((await fork().findAndCount('Book', {}, { limit: 5, offset: 5, orderBy: { id: 'asc' } }))[1], 49)
  },
  async updatesSchema () {
    await orm.em.getConnection().execute('alter table "book" add column "extra" int')
    want((await orm.schema.getUpdateSchemaSQL({ wrap: false })).includes('drop column "extra"'), true)
    await orm.schema.updateSchema()
  },
  async migrates () {
    const m = orm.getMigrator()
    await m.up()
    want((await m.getExecutedMigrations()).length, 1)
    await m.down()
    want((await m.getPendingMigrations()).length, 1)
  },
  async drops () { await orm.schema.dropSchema({ dropMigrationsTable: true }) }
}, () => orm.close())
