import Knex from 'knex'
import objection from 'objection'
import { config, key, run, want } from './run.mjs'

const { Model, raw, ref, fn, UniqueViolationError, NotNullViolationError, ForeignKeyViolationError } = objection
const withKey = await key()
const knex = Knex({ client: 'pg', connection: config })
Model.knex(knex)
class Person extends Model {
  static tableName = 'persons'
  static get relationMappings () {
    return { pets: { relation: Model.HasManyRelation, modelClass: Pet, join: { from: 'persons.id', to: 'pets.owner' } }, above: { relation: Model.BelongsToOneRelation, modelClass: Person, join: { from: 'persons.parent', to: 'persons.id' } },
      movies: { relation: Model.ManyToManyRelation, modelClass: Movie, join: { from: 'persons.id', through: { from: 'persons_movies.person', to: 'persons_movies.movie', extra: ['role'] }, to: 'movies.id' } } }
  }
}
class Pet extends Model { static tableName = 'pets' }
class Movie extends Model { static tableName = 'movies' }
class Order extends Model { static tableName = 'oorders'; static idColumn = ['tenant', 'id'] }
await run({
  async tables () {
    for (const t of ['persons_movies', 'movies', 'pets', 'persons', 'oorders']) await knex.schema.dropTableIfExists(t)
    await knex.schema.createTable('persons', t => { t.increments(); t.integer('parent').references('persons.id'); t.string('name').notNullable().unique(); t.jsonb('data') })
    await knex.schema.createTable('pets', t => { t.increments(); t.integer('owner').references('persons.id').onDelete('CASCADE').index(); t.string('name') })
    await knex.schema.createTable('movies', t => { t.increments(); t.string('title') })
    await knex.schema.createTable('persons_movies', t => { t.integer('person').references('persons.id').onDelete('CASCADE'); t.integer('movie').references('movies.id'); t.string('role') })
    await knex.raw('CREATE TABLE oorders (tenant bigint, id bigint, price int, PRIMARY KEY (tenant, id))' + withKey.replace("'k'", "'tenant'"))
  },
  async graphs () {
    const p = await Person.query().insertGraph({ name: 'a', data: { x: { y: 1 } }, above: { name: 'up' }, pets: [{ name: 'cat' }, { name: 'dog' }], movies: [{ title: 'm', role: 'lead' }] })
    want([p.name, p.pets.length], ['a', 2])
    for (const how of ['withGraphFetched', 'withGraphJoined']) want((await Person.query()[how]('[pets, above, movies]').where('persons.name', 'a').first()).movies[0].role, 'lead')
    await Person.query().upsertGraph({ id: p.id, name: 'b', pets: [{ id: p.pets[0].id, name: 'lion' }, { name: 'bird' }] })
    want((await Person.relatedQuery('pets').for(p.id).orderBy('name')).map(x => x.name), ['bird', 'lion'])
  },
  async queries () {
    await Person.query().insert(Array.from({ length: 100 }, (_, i) => ({ name: 'n' + i })))
    want((await Person.query().where('name', 'like', 'n1%').page(1, 5)).total, 11)
    want(await Person.query().where(ref('data:x.y').castInt(), 1).resultSize(), 1)
    want((await Person.query().select('persons.id', Person.relatedQuery('pets').count().as('n')).orderBy('n', 'desc').first()).n, '2')
    want(await Person.query().patch({ data: { z: 1 } }).where('name', 'n1'), 1)
    await Person.query().where('name', 'n1').patch({ 'data:z': 5 })
    want((await Person.query().findOne({ name: 'n1' })).data.z, 5)
    want(await Person.query().deleteById(99999), 0)
    want((await Person.query().whereExists(Person.relatedQuery('pets'))).length, 1)
    want((await Person.query().patch({ name: raw('upper(name)') }).where('name', 'n2').returning('*'))[0].name, 'N2')
  },
  async errors () {
    want(await Person.query().insert({ name: 'n1' }).catch(e => e instanceof UniqueViolationError), true)
    want(await Person.query().insert({}).catch(e => e instanceof NotNullViolationError), true)
    want(await Pet.query().insert({ owner: 0 }).catch(e => e instanceof ForeignKeyViolationError), true)
  },
  async transactions () {
    await Person.transaction(async t => { await Person.query(t).insert({ name: 'tx' }); await t.transaction(async s => { await Person.query(s).insert({ name: 'tx' }) }).catch(() => {}) })
    want(await Person.query().where({ name: 'tx' }).forUpdate().resultSize(), 1)
  },
  async sharded () {
    await Order.query().insert(Array.from({ length: 90 }, (_, i) => ({ tenant: i % 9, id: i, price: i })))
    want((await Order.query().findById([3, 12])).price, 12)
    want(await Order.query().where('tenant', 4).patch({ price: 1 }), 10)
    want((await Order.query().select('tenant', fn.sum(ref('price')).as('s')).groupBy('tenant').orderBy('tenant')).map(o => Number(o.s)).slice(3, 5), [435, 10])
    want(await Order.query().whereIn(['tenant', 'id'], [[1, 1], [2, 2]]).delete(), 2)
    want((await Order.query().insert({ tenant: 3, id: 12, price: 5 }).onConflict(['tenant', 'id']).merge().returning('*')).price, 5)
  }
}, () => knex.destroy())
