package orm

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// The models are those of the migrations. Every table has the tenant in its key,
// so that what belongs together is on one shard.

type Customer struct {
	TenantID  int64     `gorm:"primaryKey;autoIncrement:false"`
	ID        uuid.UUID `gorm:"primaryKey;type:uuid"`
	Name      string
	Email     string
	CreatedAt time.Time
	Orders    []Order `gorm:"foreignKey:TenantID,CustomerID;references:TenantID,ID"`
}

func (c *Customer) BeforeCreate(*gorm.DB) error { return newID(&c.ID) }

type Order struct {
	TenantID   int64     `gorm:"primaryKey;autoIncrement:false"`
	ID         uuid.UUID `gorm:"primaryKey;type:uuid"`
	CustomerID uuid.UUID `gorm:"type:uuid"`
	Total      string    `gorm:"type:numeric(12,2);default:0"`
	Paid       bool
	Note       *string
	CreatedAt  time.Time
	Customer   *Customer `gorm:"foreignKey:TenantID,CustomerID;references:TenantID,ID"`
	Lines      []Line    `gorm:"foreignKey:TenantID,OrderID;references:TenantID,ID"`
}

func (o *Order) BeforeCreate(*gorm.DB) error { return newID(&o.ID) }

func newID(id *uuid.UUID) error {
	if *id == uuid.Nil {
		*id = uuid.New()
	}
	return nil
}

type Line struct {
	TenantID int64     `gorm:"primaryKey;autoIncrement:false"`
	OrderID  uuid.UUID `gorm:"primaryKey;type:uuid"`
	Number   int32     `gorm:"primaryKey;autoIncrement:false"`
	Product  string
	Quantity int32
	Price    string `gorm:"type:numeric(12,2)"`
}

// Review is a table that GORM makes itself.
type Review struct {
	TenantID  int64     `gorm:"primaryKey;autoIncrement:false"`
	ID        uuid.UUID `gorm:"primaryKey;type:uuid"`
	Stars     int       `gorm:"not null;index:review_stars"`
	Text      string    `gorm:"size:200"`
	DeletedAt gorm.DeletedAt
}

func openGORM(t *testing.T, c target) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: c.db}), &gorm.Config{Logger: logger.Discard, TranslateError: true})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestGORM(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c target) {
		migrate(t, c)
		db := openGORM(t, c)
		for tenant := int64(1); tenant <= 3; tenant++ {
			db := db.Where("tenant_id = ?", tenant).Session(&gorm.Session{})
			must := func(what string, tx *gorm.DB, rows int64) {
				t.Helper()
				if tx.Error != nil || tx.RowsAffected != rows {
					t.Errorf("%s: %d rows, %v", what, tx.RowsAffected, tx.Error)
				}
			}
			plain := db.Session(&gorm.Session{NewDB: true})
			// A customer with its orders and their lines: three INSERTs, one transaction.
			ada := Customer{TenantID: tenant, Name: "Ada", Email: "ada@example.org"}
			for i := range 3 {
				ada.Orders = append(ada.Orders, Order{TenantID: tenant, Total: fmt.Sprintf("%d.50", i), Lines: []Line{
					{TenantID: tenant, Number: 1, Product: "tea", Quantity: 1, Price: "1.00"}, {TenantID: tenant, Number: 2, Product: "cup", Quantity: 2, Price: "0.25"}}})
			}
			must("create", plain.Create(&ada), 1)
			// Preloaded inside the tenant.
			var got Customer
			tx := db.Preload("Orders", "tenant_id = ?", tenant).Preload("Orders.Lines", "tenant_id = ?", tenant).First(&got, "id = ?", ada.ID)
			must("first", tx, 1)
			if len(got.Orders) != 3 || len(got.Orders[0].Lines) != 2 || got.CreatedAt.IsZero() {
				t.Errorf("preloaded %+v", got)
			}
			// GORM's own preload, by the rows of keys that it has.
			must("preload", db.Preload("Orders.Lines").Preload(clause.Associations).Find(&[]Customer{}), 1)
			var joined []Order
			must("joins", plain.Joins("Customer").Where("orders.tenant_id = ?", tenant).Order("orders.total").Find(&joined), 3)
			if len(joined) != 3 || joined[2].Customer == nil || joined[2].Customer.Name != "Ada" || joined[2].Total != "2.50" {
				t.Errorf("joined %+v", joined)
			}
			if len(joined) == 0 {
				t.FailNow()
			}
			// Changes.
			o := joined[0]
			o.Customer = nil
			note := "soon"
			must("updates", plain.Model(&o).Updates(map[string]any{"paid": true, "note": note}), 1)
			o.Total = "9.99"
			must("save", plain.Save(&o), 1)
			must("update all", db.Model(&Order{}).Where("paid = ?", false).Update("note", "late"), 2)
			var n int64
			if err := db.Model(&Order{}).Where("note = ?", "late").Count(&n).Error; err != nil || n != 2 {
				t.Errorf("count %d, %v", n, err)
			}
			var sums []struct {
				Paid  bool
				Total string
			}
			must("group", db.Model(&Order{}).Select("paid, sum(total) AS total").Group("paid").Order("paid").Scan(&sums), 2)
			if len(sums) != 2 || sums[1].Total != "9.99" {
				t.Errorf("sums %+v", sums)
			}
			// Associations.
			if err := plain.Model(&ada).Association("Orders").Append(&Order{TenantID: tenant, Total: "7"}); err != nil {
				t.Errorf("append: %v", err)
			}
			if n := plain.Model(&ada).Association("Orders").Count(); n != 4 {
				t.Errorf("%d orders", n)
			}
			// Conflicts, and errors as GORM knows them.
			again := Customer{TenantID: tenant, ID: ada.ID, Name: "Ada L.", Email: "ada@example.org"}
			must("upsert", plain.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "tenant_id"}, {Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"name"})}).Create(&again), 1)
			if err := plain.Create(&Customer{TenantID: tenant, Name: "x", Email: "ada@example.org"}).Error; !errors.Is(err, gorm.ErrDuplicatedKey) {
				t.Errorf("duplicate: %v", err)
			}
			if err := db.First(&Customer{}, "id = ?", uuid.New()).Error; !errors.Is(err, gorm.ErrRecordNotFound) {
				t.Errorf("nobody: %v", err)
			}
			// Transactions, one inside another.
			failed := errors.New("no")
			err := plain.Transaction(func(tx *gorm.DB) error {
				if err := tx.Create(&Customer{TenantID: tenant, Name: "Grace", Email: "grace@example.org"}).Error; err != nil {
					return err
				}
				if err := tx.Transaction(func(tx *gorm.DB) error {
					return errors.Join(tx.Create(&Customer{TenantID: tenant, Name: "Nobody", Email: "nobody@example.org"}).Error, failed)
				}); !errors.Is(err, failed) {
					return fmt.Errorf("inner transaction: %w", err)
				}
				return nil
			})
			if err != nil {
				t.Errorf("transaction: %v", err)
			}
			var names []string
			must("pluck", db.Model(&Customer{}).Order("name").Pluck("name", &names), 2)
			if !slices.Equal(names, []string{"Ada L.", "Grace"}) {
				t.Errorf("names %v", names)
			}
			// In batches, read back by pages, with a row locked, and gone.
			var lines []Line
			for i := range int32(25) {
				lines = append(lines, Line{TenantID: tenant, OrderID: o.ID, Number: 100 + i, Product: "nail", Quantity: 1, Price: "0.01"})
			}
			must("batches", plain.CreateInBatches(lines, 10), 25)
			var page []Line
			must("page", db.Where("number >= 100").Order("number").Limit(10).Offset(20).Find(&page), 5)
			must("locking", db.Clauses(clause.Locking{Strength: "UPDATE"}).Find(&[]Order{}, "paid"), 1)
			must("delete", plain.Delete(&lines[0]), 1)
			must("delete where", db.Where("order_id = ?", o.ID).Delete(&Line{}), 26)
			must("raw", plain.Raw("SELECT name FROM customers WHERE tenant_id = ? AND name LIKE ?", tenant, "A%").Scan(&names), 1)
		}
		// A query of all tenants is answered by all shards.
		var all []Customer
		var n int64
		if err := errors.Join(db.Find(&all).Error, db.Model(&Customer{}).Count(&n).Error); err != nil || n == 0 || len(all) != int(n) {
			t.Errorf("%d of %d customers were found: %v", len(all), n, err)
		}
	})
}

// TestGORMAutoMigrate makes a sharded table by GORM's own migrator, and changes it.
func TestGORMAutoMigrate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c target) {
		db := openGORM(t, c)
		if err := db.Set("gorm:table_options", "WITH (cleave.shard_key = 'tenant_id')").AutoMigrate(&Review{}); err != nil {
			t.Fatal(err)
		}
		if got := tables(t, c); got["reviews"] != "sharded" {
			t.Fatalf("tables %v", got)
		}
		r := Review{TenantID: 5, ID: uuid.New(), Stars: 4, Text: "warm"}
		if err := db.Create(&r).Error; err != nil {
			t.Fatal(err)
		}
		if !db.Migrator().HasColumn(&Review{}, "stars") || !db.Migrator().HasIndex(&Review{}, "review_stars") || !db.Migrator().HasTable("reviews") {
			t.Error("the migrator does not see what it made")
		}
		if err := db.AutoMigrate(&Review{}); err != nil {
			t.Errorf("again: %v", err)
		}
		type Review struct {
			TenantID  int64     `gorm:"primaryKey;autoIncrement:false"`
			ID        uuid.UUID `gorm:"primaryKey;type:uuid"`
			Stars     int       `gorm:"not null;index:review_stars"`
			Text      string    `gorm:"size:200"`
			Helpful   *int64
			DeletedAt gorm.DeletedAt
		}
		if err := db.Migrator().AddColumn(&Review{}, "Helpful"); err != nil || !db.Migrator().HasColumn(&Review{}, "helpful") {
			t.Errorf("a new column: %v", err)
		}
		if err := db.Delete(&Review{TenantID: 5, ID: r.ID}).Error; err != nil {
			t.Errorf("soft delete: %v", err)
		}
		var left, all int64
		err := errors.Join(db.Model(&Review{}).Where("tenant_id = 5").Count(&left).Error, db.Unscoped().Model(&Review{}).Where("tenant_id = 5").Count(&all).Error)
		if err != nil || left != 0 || all != 1 {
			t.Errorf("%d left of %d, %v", left, all, err)
		}
		if err := db.Migrator().DropTable(&Review{}); err != nil {
			t.Errorf("drop: %v", err)
		}
	})
}
