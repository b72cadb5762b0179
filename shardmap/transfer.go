package shardmap

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// Transfer moves a cluster from one directory to another: every version of the
// map as it was, the whole history, and the records.
type Transfer struct {
	From, To       Directory
	FromURL, ToURL string // as they are shown: without passwords
	By             string
	// Now is the clock of the marks; nil is time.Now.
	Now func() time.Time
}

// TransferPlan is what a Transfer does, or has done.
type TransferPlan struct {
	Cluster  string   `json:"cluster"`
	Version  uint64   `json:"version"`  // of the map that is moved
	Versions uint64   `json:"versions"` // that the target does not have yet
	Records  int      `json:"records"`
	Members  int      `json:"members"` // of the source, which stop serving
	Done     bool     `json:"done"`
	Steps    []string `json:"steps"`
}

// step is what a Transfer has found out.
type step struct {
	src, dst         Mover
	srcMark, dstMark *Move
	snap             *Snapshot
	have             uint64
	finished         bool
}

// Plan checks that the transfer is possible and returns what it would do.
//
// Errors: 55000 when the source is not where the cluster is, or the target holds
// another cluster, or history that is not the source's.
func (t *Transfer) Plan(ctx context.Context) (*TransferPlan, error) {
	p, _, err := t.plan(ctx)
	return p, err
}

func (t *Transfer) plan(ctx context.Context) (*TransferPlan, *step, error) {
	refuse := func(hint, format string, args ...any) (*TransferPlan, *step, error) {
		return nil, nil, sqlstate.New(sqlstate.ObjectNotInState, format, args...).WithHint("%s", hint)
	}
	s := &step{}
	var ok1, ok2 bool
	s.src, ok1 = t.From.(Mover)
	s.dst, ok2 = t.To.(Mover)
	if !ok1 || !ok2 || t.FromURL == t.ToURL {
		return refuse("name two directories, one with --from, the other with --to", "a cluster cannot move from %s to %s", t.FromURL, t.ToURL)
	}
	var err error
	if s.snap, err = t.From.Load(ctx); err != nil {
		return nil, nil, err
	}
	if s.srcMark, err = s.src.Moved(ctx); err != nil {
		return nil, nil, err
	}
	if s.srcMark != nil && (s.srcMark.From != "" || s.srcMark.Target != t.ToURL) {
		return nil, nil, Moved(*s.srcMark)
	}
	if s.dstMark, err = s.dst.Moved(ctx); err != nil {
		return nil, nil, err
	}
	there, err := t.To.Load(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, nil, err
	}
	if there == nil && s.dstMark == nil {
		list, err := t.To.Records(ctx, "", "", 1)
		if err != nil {
			return nil, nil, err
		}
		if len(list) > 0 {
			return refuse("choose an empty directory", "the target %s is not empty: it holds the record %q", t.ToURL, list[0].Key)
		}
	}
	cluster := s.snap.State().Cluster
	if there != nil {
		s.have = there.Version()
		switch {
		case there.State().Cluster != cluster:
			return refuse("choose an empty directory", "the target %s is not empty: it holds another cluster, %s", t.ToURL, there.State().Cluster)
		case s.dstMark == nil && s.srcMark != nil && s.have >= s.snap.Version():
			s.finished = true
		case s.dstMark == nil:
			return refuse("find out which of the two is in use (cleave map history), and remove the other",
				"the target %s is not empty: it holds the same cluster at version %d and was never left", t.ToURL, s.have)
		}
	}
	if s.dstMark != nil && (s.dstMark.From != "" && s.dstMark.From != t.FromURL || s.dstMark.Target != "" && s.dstMark.Target != t.FromURL) {
		return nil, nil, Moved(*s.dstMark)
	}
	if !s.finished {
		if err := t.prefix(ctx, s.have); err != nil {
			return nil, nil, err
		}
	}
	p := &TransferPlan{Cluster: cluster, Version: s.snap.Version(), Done: s.finished}
	if p.Records, err = countRecords(ctx, t.From); err != nil {
		return nil, nil, err
	}
	members, err := t.From.Members(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.Members = len(members)
	if s.finished {
		p.Steps = []string{fmt.Sprintf("nothing: cluster %s is in %s already", cluster, t.ToURL)}
		return p, s, nil
	}
	p.Versions = p.Version - s.have
	p.Steps = []string{
		fmt.Sprintf("mark %s: a copy from %s is going on", t.ToURL, t.FromURL),
		fmt.Sprintf("mark %s: the cluster has moved to %s. From here on nothing changes there", t.FromURL, t.ToURL),
		fmt.Sprintf("copy %d versions of the map with their history, and %d records", p.Versions, p.Records),
		fmt.Sprintf("wait until the %d routers and programs that use %s have stopped: at most for the time of a lease", p.Members, t.FromURL),
		fmt.Sprintf("compare, and open %s", t.ToURL),
	}
	return p, s, nil
}

// transferPage is how many lines of history or records are read at a time.
const transferPage = 100

// prefix checks that what the target has is how the source began.
func (t *Transfer) prefix(ctx context.Context, have uint64) error {
	for after := uint64(0); after < have; {
		page := int(min(transferPage, have-after))
		a, err := t.From.History(ctx, after, page)
		if err != nil {
			return err
		}
		b, err := t.To.History(ctx, after, page)
		if err != nil {
			return err
		}
		if len(b) == 0 || !reflect.DeepEqual(a, b) {
			return sqlstate.New(sqlstate.ObjectNotInState, "the target %s holds the same cluster, but another history after version %d", t.ToURL, after).
				WithHint("choose an empty directory")
		}
		after = b[len(b)-1].Version
	}
	return nil
}

func countRecords(ctx context.Context, d Directory) (n int, err error) {
	err = eachRecord(ctx, d, func(Record) error { n++; return nil })
	return n, err
}

func eachRecord(ctx context.Context, d Directory, do func(Record) error) error {
	for after := ""; ; {
		list, err := d.Records(ctx, "", after, transferPage)
		if err != nil {
			return err
		}
		for _, r := range list {
			if err := do(r); err != nil {
				return err
			}
			after = r.Key
		}
		if len(list) < transferPage {
			return nil
		}
	}
}

// Run carries the transfer out. It can be interrupted at any moment and run
// again: before the source is marked nothing has happened; from then on the
// cluster's map cannot be changed until Run has come to its end.
func (t *Transfer) Run(ctx context.Context) (*TransferPlan, error) {
	p, s, err := t.plan(ctx)
	if err != nil || p.Done {
		return p, err
	}
	now := t.Now
	if now == nil {
		now = time.Now
	}
	at := now().UTC().Truncate(time.Microsecond)
	coming := s.dstMark
	if coming == nil || coming.From == "" {
		coming = &Move{From: t.FromURL, By: t.By, At: at}
		if err := s.dst.SetMoved(ctx, s.dstMark, coming, s.have); err != nil {
			return nil, err
		}
	}
	if err := t.markSource(ctx, s, at); err != nil {
		return nil, err
	}
	if s.snap, err = t.From.Load(ctx); err != nil {
		return nil, err
	}
	p.Version, p.Versions = s.snap.Version(), s.snap.Version()-s.have
	if err := t.versions(ctx, s); err != nil {
		return nil, err
	}
	if p.Records, err = t.records(ctx, s); err != nil {
		return nil, err
	}
	if err := t.silence(ctx); err != nil {
		return nil, err
	}
	got, err := t.To.Load(ctx)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(got.State(), s.snap.State()) {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "after the copy, version %d of the map in %s is not that in %s", got.Version(), t.ToURL, t.FromURL)
	}
	if err := s.dst.SetMoved(ctx, coming, nil, s.snap.Version()); err != nil {
		return nil, err
	}
	p.Done = true
	return p, nil
}

// markSource marks the source as moved, at its newest version.
func (t *Transfer) markSource(ctx context.Context, s *step, at time.Time) error {
	for s.srcMark == nil {
		mark := &Move{Target: t.ToURL, By: t.By, At: at}
		err := s.src.SetMoved(ctx, nil, mark, s.snap.Version())
		if errors.Is(err, ErrConflict) { // the map changed a moment ago
			if s.snap, err = t.From.Load(ctx); err != nil {
				return err
			}
			if other, err := s.src.Moved(ctx); err != nil {
				return err
			} else if other != nil {
				return Moved(*other)
			}
			continue
		}
		if err != nil {
			return err
		}
		s.srcMark = mark
	}
	return nil
}

func (t *Transfer) versions(ctx context.Context, s *step) error {
	for s.have < s.snap.Version() {
		list, err := t.From.History(ctx, s.have, transferPage)
		if err != nil {
			return err
		}
		for _, e := range list {
			snap, err := t.From.At(ctx, e.Version)
			if err != nil {
				return err
			}
			if err := s.dst.Restore(ctx, e, snap); err != nil {
				return err
			}
			s.have = e.Version
		}
		if len(list) == 0 {
			return sqlstate.New(sqlstate.DataCorrupted, "the history of %s ends at version %d, its map is version %d", t.FromURL, s.have, s.snap.Version())
		}
	}
	return nil
}

// records makes the target's records those of the source.
func (t *Transfer) records(ctx context.Context, s *step) (n int, err error) {
	keep := map[string]bool{}
	err = eachRecord(ctx, t.From, func(r Record) error {
		keep[r.Key] = true
		value := r.Value
		if value == nil {
			value = []byte{}
		}
		return s.dst.RestoreRecord(ctx, r.Key, value)
	})
	if err != nil {
		return 0, err
	}
	var old []string
	err = eachRecord(ctx, t.To, func(r Record) error {
		if !keep[r.Key] {
			old = append(old, r.Key)
		}
		return nil
	})
	for _, key := range old {
		if err == nil {
			err = s.dst.RestoreRecord(ctx, key, nil)
		}
	}
	return len(keep), err
}

// silence waits until nobody can answer by the source's map: the first change in
// the target would not wait for them.
func (t *Transfer) silence(ctx context.Context) error {
	for {
		list, err := t.From.Members(ctx)
		if err != nil || len(list) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
