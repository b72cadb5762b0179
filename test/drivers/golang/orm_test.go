package golang

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/Masterminds/squirrel"
	"github.com/go-pg/pg/v10"
	"github.com/go-pg/pg/v10/orm"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"xorm.io/xorm"
)

func asPg(err error, e **pgconn.PgError) bool { return errors.As(err, e) }

type gormUser struct {
	ID        uint
	Name      string `gorm:"size:50;uniqueIndex"`
	Data      string `gorm:"type:jsonb;default:'{}'"`
	CreatedAt time.Time
	DeletedAt gorm.DeletedAt `gorm:"index"`
	Posts     []gormPost     `gorm:"foreignKey:UserID;constraint:OnDelete:CASCADE"`
	Tags      []gormTag      `gorm:"many2many:gorm_user_tags"`
}

type gormPost struct {
	ID     uint
	UserID uint
	Title  string
}

type gormTag struct {
	ID   uint
	Name string
}

type gormOrder struct {
	Tenant int64 `gorm:"primaryKey;autoIncrement:false"`
	ID     int64 `gorm:"primaryKey;autoIncrement:false"`
	Price  int
}

func (gormOrder) TableName() string { return "gorm_orders" }

func TestGORM(t *testing.T) {
	drop(t, "gorm_user_tags", "gorm_posts", "gorm_tags", "gorm_users")
	for _, simple := range []bool{false, true} {
		declare(t, "gorm_orders", "tenant")
		db, err := gorm.Open(postgres.New(postgres.Config{DSN: url(), PreferSimpleProtocol: simple}), &gorm.Config{Logger: logger.Discard, PrepareStmt: !simple, TranslateError: true})
		must(t, err)
		for range 2 {
			must(t, db.AutoMigrate(&gormUser{}, &gormPost{}, &gormTag{}, &gormOrder{}))
		}
		u := gormUser{Name: "a", Posts: []gormPost{{Title: "p"}, {Title: "q"}}, Tags: []gormTag{{Name: "x"}}}
		must(t, db.Create(&u).Error)
		var users []gormUser
		for i := range 100 {
			users = append(users, gormUser{Name: "n" + string(rune('a'+i%26)) + string(rune('a'+i/26))})
		}
		must(t, db.CreateInBatches(users, 30).Error)
		var got gormUser
		must(t, db.Preload("Posts").Preload("Tags").First(&got, "name = ?", "a").Error)
		want(t, len(got.Posts), 2)
		want(t, got.Tags[0].Name, "x")
		var n int64
		must(t, db.Model(&gormPost{}).Joins("JOIN gorm_users ON gorm_posts.user_id = gorm_users.id").Where("title IN ? AND gorm_users.name = ?", []string{"p", "q"}, "a").Count(&n).Error)
		want(t, n, 2)
		want(t, errors.Is(db.Create(&gormUser{Name: "a"}).Error, gorm.ErrDuplicatedKey), true)
		must(t, db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"data"})}).Create(&gormUser{Name: "a", Data: `{"b": 1}`}).Error)
		must(t, db.Transaction(func(tx *gorm.DB) error {
			_ = tx.Transaction(func(tx *gorm.DB) error { tx.Create(&gormUser{Name: "inner"}); return errors.New("back") })
			if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&got, got.ID).Error; err != nil {
				return err
			}
			return tx.Model(&got).Update("data", `{"c": 2}`).Error
		}))
		must(t, db.Delete(&got).Error)
		must(t, db.Unscoped().Model(&gormUser{}).Where("deleted_at IS NOT NULL").Count(&n).Error)
		want(t, n, 1)
		var orders []gormOrder
		for i := range int64(90) {
			orders = append(orders, gormOrder{Tenant: i % 9, ID: i, Price: int(i)})
		}
		must(t, db.Create(&orders).Error)
		must(t, db.Save(&gormOrder{Tenant: 3, ID: 3, Price: 7}).Error)
		var sums []struct {
			Tenant int64
			Sum    int
		}
		must(t, db.Model(&gormOrder{}).Select("tenant, sum(price) AS sum").Group("tenant").Order("tenant").Scan(&sums).Error)
		want(t, sums[3].Sum, 439)
		want(t, db.Model(&gormOrder{}).Where("tenant = ?", 4).Update("price", gorm.Expr("price + ?", 1)).RowsAffected, 10)
		rows := 0
		must(t, db.FindInBatches(&orders, 25, func(*gorm.DB, int) error { rows += len(orders); return nil }).Error)
		want(t, rows, 90)
		want(t, db.Migrator().HasColumn(&gormOrder{}, "price"), true)
		must(t, db.Migrator().AddColumn(&struct {
			gormOrder
			More string
		}{}, "More"))
		types, err := db.Migrator().ColumnTypes("gorm_orders")
		must(t, err)
		want(t, len(types), 4)
		must(t, db.Migrator().DropTable(&gormUser{}, &gormPost{}, &gormTag{}, "gorm_user_tags", &gormOrder{}))
	}
}

type bunUser struct {
	bun.BaseModel `bun:"table:bun_users"`
	ID            int64          `bun:",pk,autoincrement"`
	Name          string         `bun:",unique"`
	Tags          []string       `bun:",array"`
	Data          map[string]int `bun:"type:jsonb"`
	Posts         []*bunPost     `bun:"rel:has-many,join:id=user_id"`
}

type bunPost struct {
	bun.BaseModel `bun:"table:bun_posts"`
	ID            int64 `bun:",pk,autoincrement"`
	UserID        int64
	Title         string
}

type bunOrder struct {
	bun.BaseModel `bun:"table:bun_orders"`
	Tenant        int64 `bun:",pk"`
	ID            int64 `bun:",pk"`
	Price         int
}

func TestBun(t *testing.T) {
	drop(t, "bun_posts", "bun_users")
	declare(t, "bun_orders", "tenant")
	ctx, db := context.Background(), bun.NewDB(open(t), pgdialect.New())
	for _, m := range []any{(*bunUser)(nil), (*bunPost)(nil)} {
		_, err := db.NewCreateTable().Model(m).IfNotExists().Exec(ctx)
		must(t, err)
	}
	users := []bunUser{{Name: "a", Tags: []string{"x", "y"}, Data: map[string]int{"n": 1}}, {Name: "b"}}
	_, err := db.NewInsert().Model(&users).Exec(ctx)
	must(t, err)
	want(t, users[1].ID, 2)
	_, err = db.NewInsert().Model(&[]bunPost{{UserID: 1, Title: "p"}, {UserID: 1, Title: "q"}}).Exec(ctx)
	must(t, err)
	var u bunUser
	must(t, db.NewSelect().Model(&u).Relation("Posts").Where("name = ?", "a").Scan(ctx))
	want(t, len(u.Posts), 2)
	want(t, u.Data["n"], 1)
	_, err = db.NewInsert().Model(&bunUser{Name: "a", Tags: []string{"z"}}).On("CONFLICT (name) DO UPDATE").Set("tags = EXCLUDED.tags").Exec(ctx)
	must(t, err)
	values := db.NewValues(&[]bunPost{{ID: 1, Title: "new"}, {ID: 2, Title: "newer"}})
	_, err = db.NewUpdate().With("v", values).Model((*bunPost)(nil)).TableExpr("v").Set("title = v.title").Where("bun_post.id = v.id").Exec(ctx)
	must(t, err)
	n, err := db.NewSelect().Model((*bunPost)(nil)).Where("title LIKE ?", "new%").Count(ctx)
	must(t, err)
	want(t, n, 2)
	_, err = db.Exec("CREATE TABLE bun_orders (tenant bigint, id bigint, price int, PRIMARY KEY (tenant, id))")
	must(t, err)
	var rows []bunOrder
	for i := range int64(90) {
		rows = append(rows, bunOrder{Tenant: i % 9, ID: i, Price: int(i)})
	}
	_, err = db.NewInsert().Model(&rows).Exec(ctx)
	must(t, err)
	var sum int
	must(t, db.NewSelect().TableExpr("bun_orders").ColumnExpr("sum(price)").Where("tenant IN (?)", bun.In([]int{1, 2})).Scan(ctx, &sum))
	want(t, sum, 415+425)
	drop(t, "bun_posts", "bun_users", "bun_orders")
}

type xormUser struct {
	Id      int64
	Name    string    `xorm:"varchar(50) unique notnull"`
	Version int       `xorm:"version"`
	Created time.Time `xorm:"created"`
}

func (xormUser) TableName() string { return "xorm_users" }

func TestXorm(t *testing.T) {
	drop(t, "xorm_users")
	e, err := xorm.NewEngine("pgx", url())
	must(t, err)
	defer e.Close()
	for range 2 {
		must(t, e.Sync(new(xormUser)))
	}
	users := []xormUser{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	_, err = e.Insert(&users)
	must(t, err)
	u := xormUser{Name: "a"}
	ok, err := e.Get(&u)
	must(t, err)
	want(t, ok, true)
	u.Name = "z"
	n, err := e.ID(u.Id).Update(&u)
	must(t, err)
	want(t, n, 1)
	n, err = e.Where("name > ?", "a").Count(new(xormUser))
	must(t, err)
	want(t, n, 3)
	_, err = e.Transaction(func(s *xorm.Session) (any, error) { return s.ID(u.Id).ForUpdate().Get(new(xormUser)) })
	must(t, err)
	tables, err := e.DBMetas()
	must(t, err)
	want(t, len(tables) > 0, true)
	drop(t, "xorm_users")
}

type pgUser struct {
	tableName struct{} `pg:"gopg_users"`
	ID        int64
	Name      string    `pg:",unique"`
	Tags      []string  `pg:",array"`
	Posts     []*pgPost `pg:"rel:has-many,join_fk:user_id"`
}

type pgPost struct {
	tableName struct{} `pg:"gopg_posts"`
	ID        int64
	UserID    int64
	Title     string
}

func TestGoPg(t *testing.T) {
	drop(t, "gopg_posts", "gopg_users")
	opts, err := pg.ParseURL(url())
	must(t, err)
	db := pg.Connect(opts)
	defer db.Close()
	for _, m := range []any{(*pgUser)(nil), (*pgPost)(nil)} {
		must(t, db.Model(m).CreateTable(&orm.CreateTableOptions{IfNotExists: true}))
	}
	_, err = db.Model(&[]pgUser{{Name: "a", Tags: []string{"x"}}, {Name: "b"}}).Insert()
	must(t, err)
	_, err = db.Model(&pgPost{UserID: 1, Title: "p"}).Insert()
	must(t, err)
	u := new(pgUser)
	must(t, db.Model(u).Relation("Posts").Where("name = ?", "a").Select())
	want(t, len(u.Posts), 1)
	must(t, db.RunInTransaction(context.Background(), func(tx *pg.Tx) error {
		st, err := tx.Prepare("UPDATE gopg_users SET name = $1 WHERE id = $2")
		if err != nil {
			return err
		}
		_, err = st.Exec("z", 1)
		return err
	}))
	_, err = db.Model(&pgUser{Name: "z"}).OnConflict("(name) DO UPDATE").Set("tags = EXCLUDED.tags").Insert()
	must(t, err)
	var b stringsReader
	_, err = db.CopyTo(&b, "COPY (SELECT name FROM gopg_users ORDER BY id) TO STDOUT")
	must(t, err)
	want(t, string(b), "z\nb\n")
	l := db.Listen(context.Background(), "gopg")
	defer l.Close()
	must(t, l.Listen(context.Background(), "gopg"))
	payload, end := "", time.Now().Add(time.Minute)
	for payload == "" && time.Now().Before(end) { // Listen does not wait for the server's answer
		_, err = db.Exec("NOTIFY gopg, 'hello'")
		must(t, err)
		_, payload, _ = l.ReceiveTimeout(context.Background(), time.Second)
	}
	want(t, payload, "hello")
	drop(t, "gopg_posts", "gopg_users")
}

type stringsReader []byte

func (b *stringsReader) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

func TestSquirrelAndSqlx(t *testing.T) {
	declare(t, "sx", "k")
	db := sqlx.NewDb(open(t), "pgx")
	_, err := db.Exec("CREATE TABLE sx (k bigint, id bigint, note text, PRIMARY KEY (k, id))")
	must(t, err)
	sq := squirrel.StatementBuilder.PlaceholderFormat(squirrel.Dollar).RunWith(squirrel.NewStmtCache(db.DB))
	ins := sq.Insert("sx").Columns("k", "id", "note")
	for i := range 50 {
		ins = ins.Values(i%5, i, "n")
	}
	_, err = ins.Suffix("ON CONFLICT DO NOTHING").Exec()
	must(t, err)
	var n int
	for k := range 5 {
		must(t, sq.Select("count(*)").From("sx").Where(squirrel.Eq{"k": []int{k, k + 1}}).Where(squirrel.Lt{"id": 40}).QueryRow().Scan(&n))
		want(t, n, map[bool]int{true: 16, false: 8}[k < 4])
	}
	rows, err := db.NamedQuery("SELECT k, id, note FROM sx WHERE k = :k ORDER BY id", map[string]any{"k": 2})
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var r struct {
			K, ID int64
			Note  string
		}
		must(t, rows.StructScan(&r))
		want(t, r.K, 2)
	}
	query, args, err := sqlx.In("SELECT id FROM sx WHERE k IN (?) ORDER BY id", []int{1, 2})
	must(t, err)
	var ids []int64
	must(t, db.Select(&ids, db.Rebind(query), args...))
	want(t, len(ids), 20)
	drop(t, "sx")
}
