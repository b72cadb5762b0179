package several

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/executor/several/tuplestore"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/wire"
)

// Held are a session's WITH HOLD cursors whose transactions have committed: rows that the router keeps
// (PersistHoldablePortal of PostgreSQL's portalcmds.c). The zero value has none; one goroutine uses it.
type Held struct {
	cursors map[string]*cursor
	formats map[uint32]int16 // that were asked for last, by type
}

// formatsMax bounds the types of which it is known how they were asked for.
const formatsMax = 256

// asked notes the formats that a FETCH wants: the next cursor is likely to be read as this one was.
func (h *Held) asked(fields []wire.Field, want []int16) {
	if h.formats == nil || len(h.formats)+len(fields) > formatsMax {
		h.formats = map[uint32]int16{}
	}
	for i := range fields {
		h.formats[fields[i].TypeOID] = wire.FormatAt(want, i)
	}
}

// guess is what a FETCH will ask for. Another FETCH is answered as well, see fetch.convert.
func (h *Held) guess(fields []wire.Field) []int16 {
	formats := make([]int16, len(fields))
	for i := range fields {
		formats[i] = h.formats[fields[i].TypeOID]
	}
	return formats
}

// guess is what a FETCH will ask for, or what can be converted: binary of types that the session's settings print in a way that does
// not give the value back.
func (c *runner) guess(fields []wire.Field) []int16 {
	formats := c.host.Held().guess(fields)
	if unfaithfulIn(c.host.Settings()) == (unfaithful{}) {
		return formats
	}
	for i := range fields {
		if printerOf(fields[i].TypeOID) != nil {
			formats[i] = 1
		}
	}
	return formats
}

// otherFormats are the formats that are asked for, nil if a cursor's rows have them. Texts that the session's settings may have printed so
// that they do not give their values back are not made binary: 0A000.
func (c *runner) otherFormats(k *cursor, want []int16) (other []int16, err error) {
	var read []wire.Field
	for i, f := range k.desc.fields {
		is, as := wire.FormatAt(k.e.results, i), wire.FormatAt(want, i)
		if is == as {
			continue
		}
		if other = want; want == nil {
			other = []int16{0}
		}
		if as == 1 && !unstyled[f.TypeOID] {
			read = append(read, f)
		}
	}
	if len(read) == 0 || unfaithfulIn(c.host.Settings()) == (unfaithful{}) {
		return other, nil
	}
	p, err := c.Participant(c.Ctx, c.host.Snapshot().State().DefaultShard, false)
	if err == nil {
		err = c.faithful(p, read, nil)
	}
	return other, err
}

// Has reports whether there is one of the name.
func (h *Held) Has(name string) bool { return h.cursors[name] != nil }

// Len is how many there are.
func (h *Held) Len() int { return len(h.cursors) }

// CloseAll closes them.
func (h *Held) CloseAll() {
	for _, k := range h.cursors {
		k.end()
	}
	h.cursors = nil
}

// directCursor refuses the name of a cursor that the transaction has declared on a shard before it came to several.
func (c *runner) directCursor(name string) error {
	for _, p := range c.Joined {
		if !p.Direct || !p.Begun || !c.Can(p.Shard).Catalogue {
			continue
		}
		res, err := c.Exec(p, "SELECT 1 FROM pg_catalog.pg_cursors WHERE name = E'"+strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(name)+"'")
		if err != nil {
			return err
		}
		if len(res.Rows) > 0 {
			return pgbackend.Exists(name)
		}
	}
	return nil
}

// hold reads the transaction's WITH HOLD cursors to their ends: they are the session's when it has committed. After an
// error, and if it does not commit, drop has to be called with them.
func (c *runner) hold(ctx context.Context) (held map[string]*cursor, err error) {
	var timer *time.Timer
	for _, name := range slices.Sorted(c.cursors.Names()) {
		k, _ := c.cursors.Find(name)
		if !k.hold {
			continue
		}
		if k.kept == nil { // NO SCROLL: those that were not read
			k.kept = tuplestore.New(k.read + 1)
			k.kept.Spill(c.shared.defaults.FileAllowance(c.host.Settings()))
		}
		if timer == nil {
			if timer = c.Timer(c.host.Timeout(), "statement timeout"); timer != nil {
				defer timer.Stop()
			}
		}
		var buf []byte
		for !k.ended {
			if err := context.Cause(ctx); err != nil {
				return held, err
			}
			if buf, _, err = k.pull(buf[:0], cursorPortion); err != nil {
				return held, err
			}
		}
		if err := c.quiet(); err != nil {
			return held, err
		}
		if held == nil {
			held = map[string]*cursor{}
		}
		held[name], _ = c.cursors.Take(name)
	}
	return held, nil
}

// keep gives cursors to the session.
func (c *runner) keep(held map[string]*cursor) {
	if len(held) == 0 {
		return
	}
	h := c.host.Held()
	if h.cursors == nil {
		h.cursors = map[string]*cursor{}
	}
	for name, k := range held {
		k.job = nil
		k.e = &execution{results: k.e.results}
		h.cursors[name] = k
	}
}

func drop(held map[string]*cursor) {
	for _, k := range held {
		k.end()
	}
}
