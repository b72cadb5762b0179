package several

import (
	"cmp"
	"context"
	"encoding/binary"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/shardmap"
)

// describe has a statement's own text judged by one shard: names, types, errors,
// parameters and columns are PostgreSQL's own. oids are the types that the client
// gave. What was described before, under the same schema and settings, is not
// asked again.
func (c *runner) describe(ctx context.Context, st *plan.Statement, oids []uint32) (*description, error) {
	text := st.Text
	if st.Judged != "" {
		text = st.Judged
	}
	prep := c.Ex.Prepare(text, oids, c.host.Snapshot().SchemaVersion(), c.host.Settings())
	if d := c.shared.get(prep); d != nil {
		return d, nil
	}
	if c.Block {
		// A description takes the shard's snapshot.
		if err := c.consistent(ctx, &execution{st: st}); err != nil {
			return nil, err
		}
	}
	shard := c.describerOf(st)
	if shard == "" && len(c.Joined) == 0 && c.Change == nil {
		shard = c.ownerOf(st)
		if !c.Block {
			d, err := c.describeAnywhere(ctx, shard, text, oids)
			if err == nil {
				c.shared.put(prep, d)
			}
			return d, err
		}
	}
	p, err := c.Participant(ctx, shard, false)
	if err != nil {
		return nil, err
	}
	d, err := c.describeFor(p, st, text, oids)
	if err == nil {
		c.shared.put(prep, d)
	}
	return d, err
}

// describeFor has a shard of the transaction describe a statement. PostgreSQL locks the table of a write that it parses, until the
// transaction's end. While a part of a keyspace is held that would keep its source from being fenced, for which the statement may be
// about to wait.
func (c *runner) describeFor(p *txn.Participant, st *plan.Statement, text string, oids []uint32) (*description, error) {
	if !c.Block || st.ReadOnly || !c.host.Snapshot().Holding() {
		return c.describeOn(p, text, oids)
	}
	if _, err := c.Exec(p, "SAVEPOINT cleave_describe"); err != nil {
		return nil, err
	}
	d, err := c.describeOn(p, text, oids)
	if err != nil {
		return nil, err
	}
	_, err = c.Exec(p, "ROLLBACK TO SAVEPOINT cleave_describe; RELEASE SAVEPOINT cleave_describe")
	return d, err
}

// describeAnywhere describes outside of a block, where nothing has begun: on the first shard, or whichever else answers. The
// statement may need none of the one that is asked first.
func (c *runner) describeAnywhere(ctx context.Context, first, text string, oids []uint32) (*description, error) {
	for tries := 1; ; tries++ {
		if tries > 1 {
			first = c.Ex.Any()
		}
		conn, err := c.Reader(ctx, first) // a read may go on there
		if conn == nil && err == nil {
			if conn, err = c.Ex.AcquireAny(ctx, first, c.Base()); err != nil {
				return nil, cmp.Or(context.Cause(ctx), err)
			}
			conn, err = c.Borrowed(conn)
		}
		if err != nil {
			return nil, err
		}
		p, err := c.Join(ctx, conn, false)
		if err != nil {
			return nil, err
		}
		d, err := c.describeOn(p, text, oids)
		if err == nil || !conn.Broken() || ctx.Err() != nil || tries == describeTries {
			return d, err
		}
		c.Ex.Shun(p.Shard)
		c.Joined, c.Lost, c.Aborted = nil, false, false
		c.GiveBack(conn)
	}
}

// describeTries bounds on how many shards a statement is tried to be described.
const describeTries = 3

// describer is the shard that describes: a part that is free, else any shard.
func (c *sender) describer() string {
	for _, p := range c.Joined {
		if p.Busy == nil {
			return p.Shard
		}
	}
	return ""
}

// describerOf is the shard that describes a statement: the default shard if there
// is something in it that only that one has.
func (c *sender) describerOf(st *plan.Statement) string {
	if st.Kind == plan.DefaultShard {
		return c.host.Snapshot().State().DefaultShard
	}
	for _, t := range st.Tables {
		if t.Kind == shardmap.Whole {
			return c.host.Snapshot().State().DefaultShard
		}
	}
	return c.describer()
}

// ownerOf is a shard that owns rows of a table of the statement: others it may not need. Of a statement without such a
// table it is any.
func (c *runner) ownerOf(st *plan.Statement) string {
	for _, t := range st.Tables {
		if ks, ok := c.host.Snapshot().Keyspace(t.Keyspace); ok {
			return c.Ex.AnyOf(ks.Owners())
		}
	}
	return c.Ex.Any()
}

// describeOn describes a text on a part.
func (c *sender) describeOn(p *txn.Participant, text string, oids []uint32) (*description, error) {
	if p.Busy != nil {
		return nil, p.Unread()
	}
	if err := c.number(p, &request{oids: oids}); err != nil {
		return nil, err
	}
	var batched bool
	if c.Block || p.Begun || len(p.Conn.LocalChanges(c.host.Settings())) > 0 {
		// Outside of a block a description needs no transaction, and what comes may
		// want to begin its own.
		var err error
		if batched, err = c.Begin(p); err != nil {
			return nil, err
		}
	}
	if batched {
		p.Pipe.Begin(c.Ex.Prepare(p.BeginText(), nil, 0, nil))
	} else if p.Begun {
		if err := c.Settle(p); err != nil {
			return nil, err
		}
	}
	d := &describing{c: c, p: p}
	p.Pipe.Unnamed(d, text, oids, p.Conn.Settings(), false)
	p.Pipe.DescribeStatement("", true, nil)
	p.Pipe.Inner = false // clients are told
	o, err := p.Pipe.Run(executor.Sync, d)
	p.Pipe.Inner = true
	if err != nil {
		return nil, c.Failure(p, err)
	}
	if o.Err != nil {
		return nil, c.Failure(p, o.Err)
	}
	for i, oid := range oids {
		if oid != 0 && i < len(d.d.params) {
			d.d.params[i] = oid
		}
	}
	return &d.d, nil
}

// describing takes the answer to a Describe (executor.Sink).
type describing struct {
	c *sender
	p *txn.Participant
	d description
}

// Frames reads the descriptions.
func (d *describing) Frames(b []byte) error {
	for len(b) >= wire.Header {
		n := 1 + int(binary.BigEndian.Uint32(b[1:]))
		body := b[wire.Header:n]
		switch b[0] {
		case wire.ParameterDescription:
			for at := 2; at+4 <= len(body); at += 4 {
				d.d.params = append(d.d.params, binary.BigEndian.Uint32(body[at:]))
			}
		case wire.RowDescription:
			d.d.columns = append([]byte(nil), body...)
			d.d.fields = wire.ReadFields(body)
		case wire.NoticeResponse:
			d.c.aside.notice(b[:n])
		}
		b = b[n:]
	}
	return nil
}

// Parameter passes a changed parameter on.
func (d *describing) Parameter(name, value string) { d.c.aside.parameter(name, value) }

// formatted appends a RowDescription with the formats of a Bind.
func (d *description) formatted(dst []byte, results []int16) []byte {
	if d.columns == nil {
		return wire.AppendEmpty(dst, wire.NoData)
	}
	fields := append([]wire.Field(nil), d.fields...)
	for i := range fields {
		fields[i].Format = wire.FormatAt(results, i)
	}
	return wire.AppendRowDescription(dst, fields)
}

// sameColumns reports whether two RowDescriptions have the same types.
func sameColumns(a, b []wire.Field) bool {
	if len(a) != len(b) {
		return false
	}
	// A row of a relation has the relation's type in place of the table's.
	own := func(f *wire.Field) bool { return f.TypeOID >= firstUserOID || f.TypeOID == oidUnknown }
	for i := range a {
		if a[i].TypeOID != b[i].TypeOID && !(own(&a[i]) && own(&b[i])) {
			return false
		}
	}
	return true
}
