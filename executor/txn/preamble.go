package txn

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/sqlstate"
)

// Preamble is what the client's statements have made of a block, which runs on a shard before its first text.
type Preamble struct {
	// BeginText is the text that begins the block.
	BeginText string
	// Modes are SET TRANSACTION and SET CONSTRAINTS since it began.
	Modes []string
	Saves pgbackend.Savepoints[Savepoint]
	// ReadOnly: the block is READ ONLY; wrote: it had written before. Else what may have written has not.
	ReadOnly, wrote bool
}

// Savepoint is what ROLLBACK TO brings back.
type Savepoint struct {
	modes    int // how many there were
	readOnly bool
}

// Beginning are BEGIN and the modes.
func (b *Preamble) Beginning() []string { return append([]string{b.BeginText}, b.Modes...) }

// SetAccess notes that the block is READ ONLY, or is not any more. wrote: something in it may have written.
func (b *Preamble) SetAccess(readOnly, wrote bool) {
	b.ReadOnly, b.wrote = readOnly, b.wrote || readOnly && wrote
}

// ModesAt are those that there were at a savepoint.
func (b *Preamble) ModesAt(at int) []string { return b.Modes[:b.Saves.At(at).modes] }

// HasNamed reports whether some of the modes are SET CONSTRAINTS with names.
func (b *Preamble) HasNamed() bool {
	return slices.ContainsFunc(b.Modes, func(m string) bool {
		return strings.HasPrefix(m, "SET CONSTRAINTS ") && !strings.HasPrefix(m, "SET CONSTRAINTS ALL ")
	})
}

// note notes what SAVEPOINT, RELEASE or ROLLBACK TO did.
func (b *Preamble) note(op, name string, at int) {
	if op == "savepoint" {
		b.Saves.Set(name, Savepoint{modes: len(b.Modes), readOnly: b.ReadOnly})
		return
	}
	was := b.Saves.At(at)
	since := b.Modes[was.modes:]
	b.Modes, b.ReadOnly = b.Modes[:was.modes], was.readOnly
	if op == "rollback to" {
		b.Saves.RollBack(at)
		return
	}
	// SET TRANSACTION ends with the savepoint, SET CONSTRAINTS does not.
	for _, m := range since {
		if strings.HasPrefix(m, "SET CONSTRAINTS ") {
			b.Modes = append(b.Modes, m)
		}
	}
	b.Saves.Release(at)
}

// beginning is the text with which the block begins on shards that take part with its first statement.
func (b *Preamble) beginning() (string, error) {
	if b.HasNamed() {
		return "", sqlstate.Refusal("CLV-1005", "SET CONSTRAINTS of some constraints is not supported before an atomic read over several shards").
			WithHint("Run SET CONSTRAINTS ALL, or SET CONSTRAINTS after the first read.")
	}
	begin := strings.Join(b.Beginning(), ";")
	for s := range b.Saves.All() {
		begin += ";SAVEPOINT " + executor.QuoteIdentifier(s)
	}
	if b.BeginText == "" {
		begin = "BEGIN" + begin
	}
	return begin, nil
}
