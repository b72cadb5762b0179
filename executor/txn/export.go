package txn

import (
	"context"
	"errors"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/moment"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Export names the snapshots of a transaction's participants, each of which has to have one.
func (t *Transactions) Export(c *Transaction) (name string, err error) {
	e := moment.Exported{Version: c.host.Snapshot().Version(), Shards: map[string]moment.Snapshot{}}
	for _, p := range c.Joined {
		if c.Proven != nil && !c.Proven[p.Shard] {
			continue
		}
		res, err := c.Exec(p, t.records(p.Shard).Point()+", pg_catalog.pg_export_snapshot()")
		if err != nil {
			return "", err
		}
		row, err := res.OneRow(3, p.Shard)
		if err != nil {
			return "", err
		}
		e.Shards[p.Shard] = moment.Snapshot{Name: row[2].String, Run: row[1].String}
		p.Unpreparable = true // PREPARE TRANSACTION refuses it
		if p.since != nil {
			e.Version = min(e.Version, p.since.Version())
		}
	}
	key, err := t.key.Renew(c.Ctx)
	if err != nil {
		return "", sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the cluster's key for snapshots cannot be read")
	}
	return e.Seal(key)
}

// Exported reads the name of what a block has exported. Errors: 22023 if it is none of the cluster's.
func (t *Transactions) Exported(ctx context.Context, name string) (e moment.Exported, err error) {
	key, err := t.key.Renew(ctx)
	if err != nil {
		return e, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the cluster's key for snapshots cannot be read")
	}
	e, ok := moment.Unseal(key, name)
	if !ok {
		return e, sqlstate.New(sqlstate.InvalidParameterValue, "invalid snapshot identifier: \"%s\"", name)
	}
	return e, nil
}

// Import begins a transaction on all parts with the snapshots that are named. On those where it has begun the shard says
// whether it can have another one. After an error nothing is begun on the others.
//
// Errors: a shard's own; 55000 if a server is not the one that it was; 57014 when ctx ends.
func (t *Transactions) Import(ctx context.Context, c *Transaction, parts []*Participant, e moment.Exported, name string) error {
	begin, err := c.beginning()
	if err != nil {
		return err
	}
	since := c.host.Snapshot()
	var fresh []*executor.Conn
	all := make([]*voter, len(parts))
	for i, p := range parts {
		if p.Busy != nil {
			return p.Unread()
		}
		all[i] = &voter{Participant: p}
		if !p.Begun {
			fresh = append(fresh, p.Conn)
		}
	}
	defer interruptible(ctx, all)()
	if err := t.importAll(parts, begin, e, name); err != nil {
		RollBack(fresh)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	proven(c, parts, since)
	return nil
}

// importAll asks all parts at the same time.
func (t *Transactions) importAll(parts []*Participant, begin string, e moment.Exported, name string) (first error) {
	note := func(p *Participant, err error) {
		if err = importFailed(onShard(err, p.Shard), e.Shards[p.Shard].Name, name); first == nil {
			first = err
		}
	}
	var asked []*Participant
	for _, p := range parts {
		sql := "SET TRANSACTION SNAPSHOT " + executor.QuoteLiteral(e.Shards[p.Shard].Name) + ";" + t.records(p.Shard).Point()
		if !p.Begun {
			sql = begin + ";" + sql
		}
		if err := p.Conn.Ask(sql); err != nil {
			note(p, err)
			break
		}
		asked = append(asked, p)
	}
	for _, p := range asked {
		res, err := p.Conn.Answer(nil)
		if err == nil {
			err = importedFrom(res, p.Shard, e.Shards[p.Shard].Run)
		}
		if err != nil {
			note(p, err)
		}
	}
	return first
}

// importedFrom reports whether the server that answered is the one that the snapshot is of: after a failover or a restart its names
// come again.
func importedFrom(res *engine.Result, shard, run string) error {
	row, err := res.OneRow(2, shard)
	if err == nil && row[1].String != run {
		err = sqlstate.New(sqlstate.ObjectNotInState, "could not import the requested snapshot").
			WithDetail("The server of shard %s was started anew since it was exported.", shard).OnShard(shard)
	}
	return err
}

// importFailed is a shard's error, with the name that the client has given.
func importFailed(err error, its, name string) error {
	var said *sqlstate.Error
	if !errors.As(err, &said) || its == "" || !strings.Contains(said.Message, its) {
		return err
	}
	e := *said
	e.Message = strings.ReplaceAll(e.Message, its, name)
	return &e
}

// proven notes that the transaction has begun on parts, with snapshots that fit each other.
func proven(c *Transaction, parts []*Participant, since *shardmap.Snapshot) {
	c.Proven = map[string]bool{}
	for _, p := range parts {
		p.Begun, p.since, c.Proven[p.Shard] = true, since, true
		p.saves = p.saves[:0]
		for range c.Saves.Len() {
			p.saves = append(p.saves, p.base)
		}
	}
}
