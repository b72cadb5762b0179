import { DataTypes, Op, Sequelize, Transaction } from 'sequelize'
import { config, run, want } from './run.mjs'

const db = new Sequelize({ dialect: 'postgres', host: config.host, port: config.port, username: config.user, database: config.database, logging: false })
// PLAIN: without the types that a SQLite shard does not store.
const plain = !!process.env.PLAIN
const User = db.define('User', { name: { type: DataTypes.STRING, unique: true }, tags: plain ? DataTypes.JSONB : DataTypes.ARRAY(DataTypes.STRING), data: DataTypes.JSONB, mood: plain ? DataTypes.STRING : DataTypes.ENUM('sad', 'ok') })
const Post = db.define('Post', { title: DataTypes.TEXT, score: DataTypes.DECIMAL(10, 2) }, { paranoid: true })
User.hasMany(Post)
Post.belongsTo(User)
await run({
  async authenticates () { await db.authenticate() },
  async syncs () { await db.sync({ force: true }) },
  async syncsAgain () { await db.sync() },
  async alters () { await db.sync({ alter: true }) },
  async creates () {
    const u = await User.create({ name: 'a', tags: ['x', 'y'], data: { a: 1 }, mood: 'ok' })
    want([u.id, u.tags], [1, ['x', 'y']])
  },
  async bulkCreates () { want((await User.bulkCreate([{ name: 'b' }, { name: 'c' }], { updateOnDuplicate: ['name'], conflictAttributes: ['name'] })).length, 2) },
  async findOrCreate () {
    want((await User.findOrCreate({ where: { name: 'once' } }))[1], true)
    want((await User.findOrCreate({ where: { name: 'once' } }))[1], false)
  },
  async findCreateFind () { want((await User.findCreateFind({ where: { name: 'once' } }))[1], false) },
  async upsert () { want((await User.upsert({ name: 'once', mood: 'sad' }))[0].mood, 'sad') },
  async includes () {
    const u = await User.findOne({ where: { name: 'a' } })
    await u.createPost({ title: 't', score: '1.50' })
    const got = await User.findAll({ include: Post, where: { name: { [Op.like]: 'a%' } }, order: [['id', 'ASC']], limit: 5 })
    want(got[0].Posts.map(p => p.score), ['1.50'])
  },
  async counts () { want((await User.findAndCountAll({ where: { data: { a: 1 } } })).count, 1) },
  async increments () { await Post.increment('score', { by: 2, where: { title: 't' } }); want(await Post.sum('score'), 3.5) },
  async transactions () {
    await db.transaction({ isolationLevel: Transaction.ISOLATION_LEVELS.REPEATABLE_READ }, async t => {
      await User.create({ name: 'tx' }, { transaction: t })
      await db.transaction({ transaction: t }, async s => { await User.create({ name: 'tx2' }, { transaction: s }) })
    })
    want(await User.count({ where: { name: { [Op.in]: ['tx', 'tx2'] } } }), 2)
  },
  async errors () { want(await User.create({ name: 'a' }).catch(e => e.name), 'SequelizeUniqueConstraintError') },
  async softDeletes () { want([await Post.destroy({ where: { title: 't' } }), await Post.count(), await Post.count({ paranoid: false })], [1, 0, 1]) },
  async queryInterface () {
    const q = db.getQueryInterface()
    await q.addColumn('Posts', 'extra', { type: DataTypes.INTEGER, defaultValue: 3 })
    await q.addIndex('Posts', ['extra'], { name: 'posts_extra' })
    await q.renameColumn('Posts', 'extra', 'more')
    await q.changeColumn('Posts', 'more', { type: DataTypes.BIGINT })
    want(Object.keys(await q.describeTable('Posts')).includes('more'), true)
    want((await q.showIndex('Posts')).some(i => i.name === 'posts_extra'), true)
    await q.removeColumn('Posts', 'more')
  }
}, () => db.close())
