# ActiveRecord: its migrations, its models and its schema dump, as its guides show them.
ENV.delete('DATABASE_URL') # for other clients: ActiveRecord would take it as a URL
require 'stringio'
require 'active_record'
require 'pg'

CONFIG = { adapter: 'postgresql', host: ENV['PGHOST'], port: ENV['PGPORT'], username: ENV['PGUSER'], database: ENV['PGDATABASE'], pool: 5 }.freeze
ActiveRecord::Base.establish_connection(CONFIG)
ActiveRecord::Migration.verbose = false
DB = -> { ActiveRecord::Base.connection }
TESTS = {}

def test(name, &block) = TESTS[name] = block

def want(got, expected) = (raise "#{got.inspect} is not #{expected.inspect}" unless got == expected)

# declare says which column shards a table, where there are shards.
def declare(table, column)
  DB.call.execute("SELECT cleave.declare('#{table}', shard_key => '#{column}')")
rescue ActiveRecord::StatementInvalid => e
  raise unless e.cause.is_a?(PG::InvalidSchemaName)
end

class CreateShop < ActiveRecord::Migration[6.1]
  def change
    enable_extension 'pgcrypto'
    create_table :users do |t|
      t.string :name, null: false, limit: 50, index: { unique: true }
      t.jsonb :data, default: {}, null: false
      t.string :tags, array: true, default: []
      t.decimal :score, precision: 10, scale: 2
      t.integer :mood, default: 0, comment: 'how it goes'
      t.integer :posts_count, default: 0
      t.integer :lock_version, default: 0
      t.timestamps
    end
    create_table :posts do |t|
      t.references :user, foreign_key: { on_delete: :cascade }
      t.text :title
      t.date :day
      t.inet :from
      t.int4range :span
      t.timestamps
    end
    create_join_table(:posts, :labels) { |t| t.index %i[post_id label_id] }
    create_table(:labels) { |t| t.string :name }
    add_check_constraint :posts, "title <> ''", name: 'titled'
  end
end

class ChangeShop < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!
  def up
    add_index :posts, :day, algorithm: :concurrently
    add_column :posts, :views, :integer, null: false, default: 0
    change_column :posts, :views, :bigint
    change_column_null :posts, :title, false
    change_column_default :posts, :title, from: nil, to: 'none'
    rename_column :posts, :views, :seen
    change_table(:labels, bulk: true) { |t| t.integer :size; t.string :colour }
    execute "COMMENT ON TABLE labels IS 'of posts'"
    execute 'CREATE VIEW seen AS SELECT id, seen FROM posts'
  end

  def down
    execute 'DROP VIEW seen'
    remove_column :posts, :seen
    remove_index :posts, :day
    change_table(:labels, bulk: true) { |t| t.remove :size, :colour }
  end
end

class User < ActiveRecord::Base
  has_many :posts, dependent: :destroy
  enum mood: { fine: 0, sad: 1 }
  validates :name, uniqueness: true
end

class Post < ActiveRecord::Base
  belongs_to :user, counter_cache: true
  has_and_belongs_to_many :labels
  scope :recent, -> { where('day > ?', Date.new(2026, 1, 1)).order(day: :desc) }
end

class Label < ActiveRecord::Base; has_and_belongs_to_many :posts; end
class Order < ActiveRecord::Base; end

test(:migrates) do
  [CreateShop, ChangeShop].each { |m| m.migrate(:up) }
  [User, Post, Label].each(&:reset_column_information)
end
test :versions do
  files = [['1', 'One', 'create_table(:ones) { |t| t.string :a }'], ['2', 'Two', 'add_column :ones, :b, :integer']].map do |v, name, body|
    path = "#{Dir.pwd}/#{v}_#{name.downcase}.rb"
    File.write(path, "class #{name} < ActiveRecord::Migration[6.1]\n def change\n #{body}\n end\nend\n")
    path
  end
  context = ActiveRecord::MigrationContext.new([File.dirname(files[0])], ActiveRecord::SchemaMigration)
  context.migrate
  want(context.current_version, 2)
  want(DB.call.columns(:ones).map(&:name), %w[id a b])
  context.rollback(2)
  want(DB.call.table_exists?(:ones), false)
  want(ActiveRecord::InternalMetadata[:environment].nil?, false)
end
test(:creates) do
  u = User.create!(name: 'a', data: { x: [1] }, tags: %w[p q], score: '1.5', mood: :sad)
  want([u.id, u.reload.data, u.tags, u.score.to_s, u.mood], [1, { 'x' => [1] }, %w[p q], '1.5', 'sad'])
  want(User.new(name: 'a').valid?, false)
end
test(:relations) do
  u = User.find_by!(name: 'a')
  p = u.posts.create!(title: 't', day: Date.new(2026, 3, 1), from: '10.0.0.1', span: 1..5)
  p.labels << Label.create!(name: 'l1') << Label.create!(name: 'l2')
  want(p.reload.span, 1...6)
  want(u.reload.posts_count, 1)
  want(Post.joins(:labels).where(labels: { name: 'l2' }).pluck(:title), ['t'])
  want(User.includes(posts: :labels).map { |x| x.posts.flat_map { |y| y.labels.map(&:name) } }, [%w[l1 l2]])
  want(User.eager_load(:posts).where(posts: { title: 't' }).count, 1)
  want(Post.recent.first.id, p.id)
end
test(:inserts_all) do
  now = Time.now
  rows = (0...300).map { |i| { name: "n#{i}", created_at: now, updated_at: now } }
  want(User.insert_all(rows, returning: %w[id]).length, 300)
  want(User.insert_all(rows, unique_by: :name).length, 0)
  User.upsert_all(rows.first(3).map { |r| r.merge(score: 9) }, unique_by: :name)
  want(User.where(score: 9).count, 3)
end
test(:batches) do
  want(User.find_each(batch_size: 40).count, 301)
  want(User.in_batches(of: 100).update_all(score: 1), 301)
  want(User.where("data @> ?", '{"x": [1]}').pick(:name), 'a')
  want(User.where('? = ANY (tags)', 'p').ids, [1])
end
test(:calculates) do
  want(User.group(:score).count, { BigDecimal(1) => 301 })
  want(User.sum(:score), 301)
  want([User.minimum(:name), User.average(:score).to_i], ['a', 1])
  want(User.where(id: User.where("name LIKE 'n1%'").select(:id)).count, 111)
  want(User.order(:id).limit(2).offset(1).pluck(:name), %w[n0 n1])
  want(User.select('name, row_number() OVER (ORDER BY name) AS r').order('r').first.r, 1)
end
test(:transactions) do
  User.transaction do
    User.create!(name: 'tx')
    User.transaction(requires_new: true) { User.create!(name: 'inner'); raise ActiveRecord::Rollback }
    begin
      User.transaction(requires_new: true) { User.insert!({ name: 'tx', created_at: Time.now, updated_at: Time.now }) }
    rescue ActiveRecord::RecordNotUnique
      nil
    end
  end
  want(User.where(name: %w[tx inner]).pluck(:name), ['tx'])
  User.transaction(isolation: :serializable) { User.where(name: 'tx').lock('FOR UPDATE NOWAIT').first.destroy! }
end
test(:locks) do
  a, b = User.find(1), User.find(1)
  a.update!(score: 3)
  begin
    b.update!(score: 4)
    raise 'no error'
  rescue ActiveRecord::StaleObjectError
    nil
  end
  a.with_lock { a.update!(score: 5) }
  want(DB.call.get_advisory_lock(77), true)
  want(DB.call.release_advisory_lock(77), true)
end
test(:prepared) do
  50.times { |i| want(User.find(i + 1).id, i + 1) }
  DB.call.execute('ALTER TABLE users ADD COLUMN late integer')
  want(User.find(1).name, 'a')
  User.transaction { want(User.where(name: 'n1').first.name, 'n1') }
  DB.call.execute('ALTER TABLE users DROP COLUMN late')
  want(User.find(2).id, 2)
  User.reset_column_information
end
test(:errors) do
  { ActiveRecord::NotNullViolation => -> { DB.call.execute('INSERT INTO labels (id) VALUES (NULL)') },
    ActiveRecord::InvalidForeignKey => -> { DB.call.execute("INSERT INTO posts (user_id, title, created_at, updated_at) VALUES (0, 'x', now(), now())") },
    ActiveRecord::ValueTooLong => -> { User.new(name: 'x' * 60).save!(validate: false) },
    ActiveRecord::RangeError => -> { User.where(id: 1).update_all('posts_count = 3000000000') },
    ActiveRecord::QueryCanceled => -> { DB.call.transaction { DB.call.execute('SET LOCAL statement_timeout = 50'); DB.call.execute('SELECT pg_sleep(10)') } } }.each do |error, f|
    f.call
    raise "no #{error}"
  rescue error
    nil
  end
end
test(:introspects) do
  c = DB.call
  want((%w[users posts labels labels_posts] - c.tables), [])
  want(c.views.include?('seen'), true)
  want(c.primary_key('users'), 'id')
  want(c.foreign_keys('posts').map { |f| [f.to_table, f.on_delete] }, [['users', :cascade]])
  want(c.indexes('users').map { |i| [i.columns, i.unique] }, [[['name'], true]])
  want(c.check_constraints('posts').map(&:name), ['titled'])
  want(c.table_comment('labels'), 'of posts')
  want(c.columns('users').find { |x| x.name == 'mood' }.comment, 'how it goes')
  want(c.extension_enabled?('pgcrypto'), true)
  want([c.current_database, c.current_schema, c.encoding], [ENV['PGDATABASE'], 'public', 'UTF8'])
  want(c.max_identifier_length, 63)
end
test(:dumps_the_schema) do
  out = StringIO.new
  ActiveRecord::SchemaDumper.dump(DB.call, out)
  want(out.string.include?('create_table "posts"') && out.string.include?('add_foreign_key "posts", "users", on_delete: :cascade'), true)
end
test(:explains) { want(User.where(name: 'a').explain.include?('EXPLAIN'), true) }
test(:sharded) do
  declare('orders', 'tenant_id')
  DB.call.create_table(:orders, primary_key: %i[tenant_id id]) { |t| t.bigint :tenant_id; t.bigint :id; t.decimal :price, precision: 10, scale: 2; t.index %i[tenant_id id], unique: true }
  Order.reset_column_information
  Order.insert_all((0...90).map { |i| { tenant_id: i % 9, id: i, price: i } }, unique_by: %i[tenant_id id])
  want(Order.where(tenant_id: 3).sum(:price), 435)
  want(Order.group(:tenant_id).order(:tenant_id).count, (0...9).to_h { |k| [k, 10] })
  want(Order.where(tenant_id: [1, 2]).order(price: :desc).limit(3).pluck(:id), [83, 82, 74])
  want(Order.where(tenant_id: 4).update_all('price = price + 1'), 10)
  want(Order.where('price > ?', 80).delete_all, 9)
  Order.upsert_all([{ tenant_id: 1, id: 1, price: 50 }], unique_by: %i[tenant_id id])
  want(Order.where(tenant_id: 1, id: 1).pluck(:price), [50])
  want(Order.find_by_sql(['SELECT o.tenant_id, max(p.price) AS top FROM orders o JOIN orders p USING (tenant_id) WHERE o.tenant_id = ? GROUP BY 1', 2]).first.top.to_i, 74)
  want(Order.maximum(:price).to_i, 80)
  DB.call.drop_table(:orders)
end
test(:threads) do
  want((0...4).map { |k| Thread.new { ActiveRecord::Base.connection_pool.with_connection { (1..20).sum { |i| User.find(i + k).id } } } }.map(&:value), [210, 230, 250, 270])
end
test(:reconnects) do
  DB.call.reconnect!
  want(DB.call.active?, true)
  DB.call.reset!
  want(User.count, 301)
end
test(:migrates_back) do
  [ChangeShop, CreateShop].each { |m| m.migrate(:down) }
  want(DB.call.table_exists?(:users), false)
end

TESTS.each do |name, f|
  f.call
  puts "ok #{name}"
rescue StandardError => e
  puts "not ok #{name}: #{e.class} #{e.message.gsub("\n", ' ')} #{e.backtrace&.find { |l| l.include?('active_record.rb') }}"
end
puts 'end'
