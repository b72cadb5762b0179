package keysource

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cleavedb/cleave/sqlstate"
)

// generator makes keys by a rule.
type generator struct {
	rows int64
	done atomic.Int64
	dice func() func() uint64 // begins anew
}

const generatorHint = "zipf:EXPONENT:ROWS[:KEYS[:SEED]], uniform:ROWS:KEYS[:SEED] or serial:ROWS"

// Generator makes a source of bigint keys in a column named key, the same ones
// each time. ok is false if text names no generator:
//
//	zipf:EXPONENT:ROWS[:KEYS[:SEED]]  key k is drawn as often as 1/k^EXPONENT, above 1; of 100,000 keys
//	uniform:ROWS:KEYS[:SEED]          each key equally often
//	serial:ROWS                       1, 2, 3, ...
func Generator(text string) (s Source, ok bool, err error) {
	parts := strings.Split(text, ":")
	bad := func(what string) (Source, bool, error) {
		return nil, true, sqlstate.New(sqlstate.InvalidParameterValue, "--from %s: %s", text, what).WithHint("use %s", generatorHint)
	}
	number := func(i int, least, def int64) (int64, bool) {
		if i >= len(parts) {
			return def, def >= least
		}
		n, err := strconv.ParseInt(strings.ReplaceAll(parts[i], "_", ""), 10, 64)
		return n, err == nil && n >= least && n <= 1e15
	}
	g := &generator{}
	var fine bool
	switch parts[0] {
	case "zipf":
		if len(parts) < 3 || len(parts) > 5 {
			return bad("has not two to four values")
		}
		exponent, err := strconv.ParseFloat(parts[1], 64)
		if err != nil || !(exponent > 1) || exponent > 100 {
			return bad("the exponent is a number above 1, up to 100")
		}
		if g.rows, fine = number(2, 1, -1); !fine {
			return bad("the number of rows is a whole number above 0")
		}
		keys, fine := number(3, 1, 100_000)
		if !fine {
			return bad("the number of keys is a whole number above 0")
		}
		seed, fine := number(4, 0, 1)
		if !fine {
			return bad("the seed is a whole number")
		}
		g.dice = func() func() uint64 {
			z := rand.NewZipf(rand.New(rand.NewPCG(uint64(seed), 0)), exponent, 1, uint64(keys-1))
			return func() uint64 { return z.Uint64() + 1 }
		}
	case "uniform":
		if len(parts) < 3 || len(parts) > 4 {
			return bad("has not two or three values")
		}
		if g.rows, fine = number(1, 1, -1); !fine {
			return bad("the number of rows is a whole number above 0")
		}
		keys, fine := number(2, 1, -1)
		if !fine {
			return bad("the number of keys is a whole number above 0")
		}
		seed, fine := number(3, 0, 1)
		if !fine {
			return bad("the seed is a whole number")
		}
		g.dice = func() func() uint64 {
			r := rand.New(rand.NewPCG(uint64(seed), 0))
			return func() uint64 { return r.Uint64N(uint64(keys)) + 1 }
		}
	case "serial":
		if len(parts) != 2 {
			return bad("has not one value")
		}
		if g.rows, fine = number(1, 1, -1); !fine {
			return bad("the number of rows is a whole number above 0")
		}
		g.dice = func() func() uint64 {
			n := uint64(0)
			return func() uint64 { n++; return n }
		}
	default:
		return nil, false, nil
	}
	return g, true, nil
}

func (g *generator) Columns() []string { return []string{"key"} }

func (g *generator) Progress() (done, all int64) { return g.done.Load(), g.rows }

func (g *generator) Close() error { return nil }

// Rows draws the keys.
func (g *generator) Rows(ctx context.Context, _ []int, visit func(fields [][]byte) error) error {
	next := g.dice()
	var buf []byte
	fields := make([][]byte, 1)
	for n := int64(0); n < g.rows; n++ {
		if n%1024 == 0 {
			g.done.Store(n)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		buf = strconv.AppendUint(buf[:0], next(), 10)
		fields[0] = buf
		if err := visit(fields); err != nil {
			return err
		}
	}
	g.done.Store(g.rows)
	return nil
}
