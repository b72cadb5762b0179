package tpch

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Rows returns the rows of all tables, each value as PostgreSQL reads it from
// text; orders is how many orders there are (1,000 give about 4,000 lines, 100
// customers, 200 parts and 50 suppliers).
func Rows(orders int) map[string][][]string {
	g := &generator{r: rand.New(rand.NewPCG(22, 1992)), rows: map[string][][]string{}}
	g.orders, g.customers, g.parts, g.suppliers = orders, max(orders/10, 30), max(orders/5, 40), 50
	g.small()
	g.supplier()
	g.customer()
	g.part()
	g.order()
	return g.rows
}

type generator struct {
	r                                   *rand.Rand
	rows                                map[string][][]string
	orders, customers, parts, suppliers int
	price                               []int // of each part, cents
}

var (
	nations = strings.Split("ALGERIA 0,ARGENTINA 1,BRAZIL 1,CANADA 1,EGYPT 4,ETHIOPIA 0,FRANCE 3,GERMANY 3,INDIA 2,INDONESIA 2,IRAN 4,IRAQ 4,JAPAN 2,JORDAN 4,"+
		"KENYA 0,MOROCCO 0,MOZAMBIQUE 0,PERU 1,CHINA 2,ROMANIA 3,SAUDI ARABIA 4,VIETNAM 2,RUSSIA 3,UNITED KINGDOM 3,UNITED STATES 1", ",")
	regions    = []string{"AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"}
	segments   = []string{"AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"}
	colours    = []string{"almond", "blue", "forest", "green", "ivory", "lemon", "navy", "red"}
	brands     = []string{"Brand#12", "Brand#23", "Brand#34", "Brand#45"}
	containers = []string{"SM CASE", "SM BOX", "MED BAG", "MED BOX", "LG CASE", "LG BOX"}
	kinds      = []string{"STANDARD", "MEDIUM", "ECONOMY", "PROMO"}
	finishes   = []string{"ANODIZED", "BURNISHED", "POLISHED"}
	metals     = []string{"BRASS", "STEEL", "TIN"}
	sizes      = []int{3, 9, 14, 15, 19, 23, 36, 45, 49, 1, 2, 5, 7}
	priorities = []string{"1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"}
	modes      = []string{"REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB", "AIR REG"}
	instructs  = []string{"DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"}
	words      = strings.Fields("carefully quickly furiously final special regular express pending deposits accounts packages foxes ideas pearls theodolites requests sleep nag haggle")
)

func pick[T any](g *generator, from []T) T { return from[g.r.IntN(len(from))] }

func (g *generator) add(table string, values ...any) {
	row := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case string:
			row[i] = v
		case int:
			row[i] = strconv.Itoa(v)
		case time.Time:
			row[i] = v.Format(time.DateOnly)
		}
	}
	g.rows[table] = append(g.rows[table], row)
}

// between returns a number from low to high.
func (g *generator) between(low, high int) int { return low + g.r.IntN(high-low+1) }

// money writes cents.
func money(cents int) string {
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	return fmt.Sprintf("%s%d.%02d", sign, cents/100, cents%100)
}

func (g *generator) comment() string {
	n := g.between(3, 6)
	out := make([]string, n)
	for i := range out {
		out[i] = pick(g, words)
	}
	return strings.Join(out, " ")
}

func (g *generator) phone(nation int) string {
	return fmt.Sprintf("%d-%03d-%03d-%04d", nation+10, g.between(100, 999), g.between(100, 999), g.between(1000, 9999))
}

func (g *generator) small() {
	for i, name := range regions {
		g.add("region", i, name, g.comment())
	}
	for i, n := range nations {
		g.add("nation", i, n[:len(n)-2], n[len(n)-1:], g.comment())
	}
}

func (g *generator) supplier() {
	for k := 1; k <= g.suppliers; k++ {
		nation, comment := k%len(nations), g.comment()
		if k%9 == 0 {
			comment = "Customer " + comment + " Complaints"
		}
		g.add("supplier", k, fmt.Sprintf("Supplier#%09d", k), "street "+strconv.Itoa(g.between(1, 99)), nation, g.phone(nation), money(g.between(-99999, 999999)), comment)
	}
}

func (g *generator) customer() {
	for k := 1; k <= g.customers; k++ {
		nation := g.r.IntN(len(nations))
		g.add("customer", k, fmt.Sprintf("Customer#%09d", k), "street "+strconv.Itoa(g.between(1, 99)), nation, g.phone(nation),
			money(g.between(-99999, 999999)), pick(g, segments), g.comment())
	}
}

// supplierOf is the n-th of the four suppliers of a part.
func (g *generator) supplierOf(part, n int) int { return (part*7+n*(g.suppliers/4+1))%g.suppliers + 1 }

func (g *generator) part() {
	for k := 1; k <= g.parts; k++ {
		price := 90000 + k%200*100 + k/10
		g.price = append(g.price, price)
		maker := g.between(1, 5)
		g.add("part", k, pick(g, colours)+" "+pick(g, colours)+" "+pick(g, colours), fmt.Sprintf("Manufacturer#%d", maker), pick(g, brands),
			pick(g, kinds)+" "+pick(g, finishes)+" "+pick(g, metals), pick(g, sizes), pick(g, containers), money(price), g.comment())
		for n := range 4 {
			g.add("partsupp", k, g.supplierOf(k, n), g.between(1, 9999), money(g.between(100, 100000)), g.comment())
		}
	}
}

func (g *generator) order() {
	first := time.Date(1992, 1, 1, 0, 0, 0, 0, time.UTC)
	today := time.Date(1995, 6, 17, 0, 0, 0, 0, time.UTC)
	for n := range g.orders {
		key := n/8*32 + n%8 + 1 // as sparse as the benchmark's
		date := first.AddDate(0, 0, g.r.IntN(2406-151))
		customer := g.between(1, g.customers)
		if customer%3 == 0 { // a third never orders
			customer = max(1, customer-1)
		}
		total, open, lines := 0, 0, g.between(1, 7)
		for line := 1; line <= lines; line++ {
			part := g.between(1, g.parts)
			quantity, discount, tax := g.between(1, 50), g.between(0, 10), g.between(0, 8)
			price := quantity * g.price[part-1]
			ship := date.AddDate(0, 0, g.between(1, 121))
			commit := date.AddDate(0, 0, g.between(30, 90))
			receipt := ship.AddDate(0, 0, g.between(1, 30))
			flag, status := "N", "O"
			if !receipt.After(today) {
				flag = pick(g, []string{"R", "A"})
			}
			if !ship.After(today) {
				status = "F"
			} else {
				open++
			}
			total += price * (100 - discount) * (100 + tax) / 10000
			g.add("lineitem", key, part, g.supplierOf(part, g.r.IntN(4)), line, quantity, money(price), money(discount), money(tax), flag, status,
				ship, commit, receipt, pick(g, instructs), pick(g, modes), g.comment())
		}
		status := "P"
		switch open {
		case 0:
			status = "F"
		case lines:
			status = "O"
		}
		g.add("orders", key, customer, status, money(total), date, pick(g, priorities), fmt.Sprintf("Clerk#%09d", g.between(1, max(1, g.orders/100))), 0, g.comment())
	}
}
