package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/planner/semantics"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// The levels of findings.
const (
	LevelOK      = "ok"
	LevelWarning = "warning"
	LevelError   = "error"
)

// replayMax bounds bringing a new shard to the schema.
const replayMax = 10 * time.Minute

// checkMax bounds the check of one shard.
const checkMax = 15 * time.Second

// checksAtOnce bounds the shards that are checked at the same time.
const checksAtOnce = 8

// Doctor says what is wrong and the next command to run: the directory, every
// shard's version, settings and identity, and whether tables, guards and
// prepared transactions are as the map says, whether indexes are half made, whether rows are where they should not be, and whether reference tables have the
// same rows on every shard. With Repair it also finishes what
// a crash left and sets what differs, where that is safe; DryRun wins over it. A
// thing that cannot be reached is a finding, not an error.
func (o *Ops) Doctor(ctx context.Context, req DoctorRequest) ([]Finding, error) {
	out, err := o.doctor(ctx, req)
	full := o.takesWrites(ctx)
	if full == nil {
		return out, err
	}
	// What cannot be stored is repaired by nobody, and what is not finished may wait for that alone.
	first := sqlstate.As(full)
	for i := range out {
		if strings.Contains(out[i].Next, "--repair") {
			out[i].What += ", while the directory takes no writes"
			out[i].Next = "first let the directory take writes: " + first.Hint
		}
	}
	return out, err
}

func (o *Ops) doctor(ctx context.Context, req DoctorRequest) ([]Finding, error) {
	snap, err := o.opts.Directory.Load(ctx)
	if err != nil {
		return []Finding{problem("", directoryError(err), "the directory")}, nil
	}
	out := []Finding{{Level: LevelOK, What: fmt.Sprintf("the directory has the map of cluster %s, version %d", snap.State().Cluster, snap.Version())}}
	if err := o.takesWrites(ctx); err != nil {
		out = append(out, problem("", err, "the directory"))
	}
	shards := snap.Shards()
	found := make([][]Finding, len(shards))
	reports := make([]engine.Report, len(shards))
	atOnce(len(shards), checksAtOnce, func(i int) { found[i], reports[i] = o.examine(ctx, snap, &shards[i]) })
	broken := map[string]string{} // shard -> what to do about it
	for _, list := range found {
		for _, f := range list {
			if f.Level == LevelError {
				broken[f.Shard] = f.Next
			}
		}
		out = append(out, list...)
	}
	out = append(out, differing(snap.State().DefaultShard, shards, reports)...)
	out = append(out, o.transactions(ctx, !req.Repair || req.DryRun)...)
	out = append(out, o.leftovers(ctx, snap)...)
	out = append(out, o.stuck(ctx, time.Now())...)
	out = append(out, examineConstraints(snap)...)
	out = append(out, unreadFunctions(snap)...)
	out = append(out, o.lostConnections(ctx)...)
	recovery := schema.RecoverOptions{
		Directory: o.opts.Directory, Connect: o.connect, Actor: req.by(), LockTimeout: o.opts.LockTimeout,
		DryRun: !req.Repair || req.DryRun, Adopt: req.Repair, SetBack: req.Repair && req.SetBack,
	}
	if req.RebuildMap {
		rebuilt, done := o.rebuild(ctx, req)
		if out = append(out, rebuilt...); !done {
			return out, nil
		}
		recovery.SetBack = true // the guards get the epochs of the map that was made of them
	}
	if recovery.SetBack && !recovery.DryRun {
		out = append(out, o.unseat(ctx, snap)...)
		if err := o.letGo(ctx, req.by()); err != nil {
			out = append(out, problem("", err, "parts on hold"))
		}
	}
	out = append(out, o.heldAndSeen(ctx)...)
	half, err := schema.FinishIntents(ctx, recovery)
	if err != nil {
		out = append(out, problem("", err, "statements outside of transactions"))
	}
	rest, err := schema.Recover(ctx, recovery)
	if err != nil {
		return append(out, problem("", err, "tables and guards")), nil
	}
	rest = append(half, rest...)
	if _, down := broken[snap.State().DefaultShard]; !down {
		rest = append(rest, schema.Reached(ctx, recovery, snap)...)
	}
	var answer []string
	for i := range shards {
		if _, down := broken[shards[i].Name]; !down {
			rest = append(rest, schema.InvalidIndexes(ctx, recovery, &shards[i])...)
			answer = append(answer, shards[i].Name)
		}
	}
	rest = append(rest, schema.MissingIndexes(ctx, recovery, snap, answer)...)
	for _, f := range findings(rest) {
		// A shard that does not answer is reported once.
		if next, ok := broken[f.Shard]; ok && f.Level == LevelError && f.Table == "" && f.Next == next {
			continue
		}
		out = append(out, f)
	}
	// By a map that is older than the guards nobody knows what an orphan is.
	if !slices.ContainsFunc(out, func(f Finding) bool { return f.Newer }) {
		out = append(out, o.examineOrphans(ctx, answer, orphansFor)...)
	}
	return append(out, o.examineCopies(ctx, req.Repair && !req.DryRun, req.by())...), nil
}

// unreadFunctions is that the map knows functions by the rules of another version: those that users have made are refused, and connections are put
// back after statements that could call one, until a schema change reads them.
func unreadFunctions(snap *shardmap.Snapshot) []Finding {
	st := snap.State()
	if st.FunctionsRead == semantics.FunctionRules || st.FunctionsRead == 0 && len(st.Functions) == 0 {
		return nil
	}
	what := "the default shard's functions were looked at by another version of Cleave: statements are slower until a schema change looks again"
	if len(st.Functions) > 0 {
		what = "the map has functions as another version of Cleave has read them: functions that users have made are refused over several shards, and statements are slower, until a schema change reads them again"
	}
	return []Finding{{Level: LevelWarning, What: what, Next: `when all routers are of this version: cleave sql "` + semantics.NoChange + `"`}}
}

// takesWrites says why the directory stores nothing although it is read; nil if nothing of that kind is known.
func (o *backend) takesWrites(ctx context.Context) error {
	if d, ok := o.opts.Directory.(shardmap.Watchful); ok {
		return d.TakesWrites(ctx)
	}
	return nil
}

// transactions reports transactions over several shards that are prepared
// although nobody is at work on them, and settles them unless it only looks.
func (o *Ops) transactions(ctx context.Context, look bool) []Finding {
	found, _, err := txn.Recovery{Directory: o.opts.Directory, Connect: o.connect, DryRun: look}.Settle(ctx)
	if err != nil {
		return []Finding{problem("", err, "transactions over several shards")}
	}
	var out []Finding
	for _, d := range found {
		f := Finding{Level: LevelWarning, Shard: d.Shards[0], Next: "cleave doctor --repair",
			What: fmt.Sprintf("transaction %s is prepared on %s for %s, and its router is no member of the cluster any more; %s has the decision", d.ID, strings.Join(d.Shards, ", "), d.Age.Round(time.Millisecond), d.Decider)}
		switch {
		case d.State == "active":
			continue
		case d.Err != nil:
			own := sqlstate.As(d.Err)
			f.Level, f.What = LevelError, f.What+"; it cannot be settled: "+own.Message
			if own.Hint != "" {
				f.Next = own.Hint
			}
		case d.State != "in doubt":
			f.Done, f.Next = d.State, ""
		}
		out = append(out, f)
	}
	return out
}

// Recover finishes what a crash left: see schema.Recover. A router runs it when
// it starts, before it serves.
func (o *Ops) Recover(ctx context.Context) ([]Finding, error) {
	found, err := schema.Recover(ctx, schema.RecoverOptions{Directory: o.opts.Directory, Connect: o.connect, Actor: "system", LockTimeout: o.opts.LockTimeout})
	if err != nil {
		return nil, err
	}
	out := append(findings(found), o.heldAndSeen(ctx)...)
	if snap, err := o.load(ctx); err == nil {
		if id := holding(snap); id != "" {
			out = append(out, Finding{Level: LevelOK, What: "guards of shards with a part on hold are looked at again: move " + id, Later: true})
		}
	}
	return out, nil
}

// SettleChanges ends schema changes that were left prepared: see schema.Settle. Routers run it when they see such.
func (o *Ops) SettleChanges(ctx context.Context) ([]Finding, error) {
	found, err := schema.Settle(ctx, schema.RecoverOptions{Directory: o.opts.Directory, Connect: o.connect, Actor: "system"})
	return findings(found), err
}

// FinishIntents takes away or finishes what statements outside of transactions have left whose router has died: see
// schema.FinishIntents. Routers run it all the time.
func (o *Ops) FinishIntents(ctx context.Context) ([]Finding, error) {
	found, err := schema.FinishIntents(ctx, schema.RecoverOptions{Directory: o.opts.Directory, Connect: o.connect, Actor: "system", LockTimeout: o.opts.LockTimeout})
	return findings(found), err
}

func findings(list []schema.Finding) []Finding {
	out := make([]Finding, len(list))
	for i, f := range list {
		out[i] = Finding(f)
	}
	return out
}

func problem(shard string, err error, what string) Finding {
	own := sqlstate.As(err)
	f := Finding{Level: LevelError, Shard: shard, What: what + ": " + own.Message, Next: own.Hint}
	if own.Detail != "" {
		f.What += " (" + own.Detail + ")"
	}
	if f.Next == "" {
		f.Next = "look at the log of the process, then: cleave doctor"
	}
	return f
}

// examine checks one shard's version, settings, privileges and identity.
func (o *Ops) examine(ctx context.Context, snap *shardmap.Snapshot, s *shardmap.Shard) ([]Finding, engine.Report) {
	ctx, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	var servers []Finding
	if len(s.Replicas) > 0 {
		var primary *shardmap.Shard
		if primary, servers = o.examineServers(ctx, snap.State().Cluster, s); primary == nil {
			return servers, engine.Report{}
		}
		s = primary
	}
	found, report := o.examinePrimary(ctx, snap, s)
	return append(servers, found...), report
}

// examinePrimary is examine for the server that takes writes, at s.URL.
func (o *Ops) examinePrimary(ctx context.Context, snap *shardmap.Snapshot, s *shardmap.Shard) ([]Finding, engine.Report) {
	sh, err := o.open(snap.State().Cluster, s)
	if err != nil {
		return []Finding{problem(s.Name, err, "shard "+s.Name)}, engine.Report{}
	}
	report, err := sh.Check(ctx)
	if err != nil {
		return []Finding{problem(s.Name, err, "shard "+s.Name+" at "+shardmap.Redacted(s.URL))}, engine.Report{}
	}
	// Connect proves that the database is this shard of this cluster.
	_, release, err := dial(ctx, sh)
	if err != nil {
		return []Finding{problem(s.Name, err, "shard "+s.Name+" at "+shardmap.Redacted(s.URL))}, engine.Report{}
	}
	release(false)
	out := []Finding{{Level: LevelOK, Shard: s.Name, What: fmt.Sprintf("shard %s answers: %s", s.Name, report.Version)}}
	for _, f := range report.Findings {
		if f.Level == LevelOK {
			continue
		}
		next := f.Fix
		if next == "" {
			next = "cleave doctor"
		}
		out = append(out, Finding{Level: f.Level, Shard: s.Name, What: findingTextShort(f.Name, f.Is, f.Want), Next: next})
	}
	return out, report
}

func findingTextShort(name, is, want string) string {
	if want == "" {
		return name + " is " + is
	}
	return name + " is " + is + ", wanted: " + want
}

// unseatTries bounds how often a shard is asked anew because a leader was faster.
const unseatTries = 20

// unseatPause is between two of them.
const unseatPause = 100 * time.Millisecond

// unseat makes all shards forget the leaders and the moves that they know: a person has decided that the map is right, although it is
// older than the shards. The tokens of its leaders begin below those that the shards have seen, and what its moves believe to be
// theirs to delete may have been written since.
func (o *Ops) unseat(ctx context.Context, snap *shardmap.Snapshot) []Finding {
	shards := snap.Shards()
	found := make([][]Finding, len(shards))
	atOnce(len(shards), checksAtOnce, func(i int) {
		s := &shards[i]
		bound, cancel := context.WithTimeout(ctx, checkMax)
		defer cancel()
		m, err := o.mover(snap, s)
		if err == nil {
			err = unseatOn(bound, m)
		}
		for n := 1; n < unseatTries && sqlstate.CodeOf(err) == sqlstate.ObjectNotInState; n++ { // a leader has come to the shard in between
			time.Sleep(unseatPause)
			err = unseatOn(bound, m)
		}
		if err != nil {
			found[i] = []Finding{problem(s.Name, err, "shard "+s.Name+" still knows the leaders and moves of the lost map")}
		}
	})
	return slices.Concat(found...)
}

func unseatOn(ctx context.Context, m engine.Mover) error {
	u, ok := m.(engine.Unseater)
	if !ok {
		return nil
	}
	if err := u.Unseat(ctx); err != nil {
		return err
	}
	ids, err := m.Captures(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if workflow.IsSpare(id) {
			if err := m.Release(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// differing reports the settings that change answers and that a shard has otherwise than the default shard, with the
// statement that mends it. Routers give their connections the default shard's values as long as a shard can have them.
func differing(first string, shards []shardmap.Shard, reports []engine.Report) (out []Finding) {
	base := slices.IndexFunc(shards, func(s shardmap.Shard) bool { return s.Name == first })
	if base < 0 {
		return nil
	}
	want := reports[base].Alike
	for i := range shards {
		var names []string
		for name, value := range want {
			if is, known := reports[i].Alike[name]; known && is != value {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			out = append(out, Finding{
				Level: LevelWarning, Shard: shards[i].Name,
				What: fmt.Sprintf("%s is %q, on the default shard %s %q: routers give their connections the default shard's", name, reports[i].Alike[name], first, want[name]),
				Next: "on the shard: " + alterDatabase(reports[i].Database, name, want[name]) + "; where ALTER ROLE ... SET or the shard's URL says otherwise, RESET it there",
			})
		}
	}
	return out
}

// alterDatabase is the statement that gives a database's sessions a setting. value is as pg_settings prints it.
func alterDatabase(database, name, value string) string {
	text := "'" + strings.ReplaceAll(value, "'", "''") + "'"
	switch {
	case name != "search_path":
	case value == `""`:
		text = "''" // a list of one name without characters
	case value != "":
		text = value // a list, quoted where it has to be
	}
	return `ALTER DATABASE "` + strings.ReplaceAll(database, `"`, `""`) + `" SET ` + name + " TO " + text
}
