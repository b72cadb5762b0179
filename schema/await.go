package schema

import (
	"context"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Before the first shard commits a decided change, every member has acknowledged the map that has it: nobody runs, or begins,
// a statement that would look for a table of the change where it was before. docs/design/schema.md says why.

// followMax bounds the wait for members to follow a decided change. A member that does not answer is none any more when
// its lease ends, which is sooner.
const followMax = 30 * time.Second

// Behind returns a member that may still run statements by a map before a version, "" if there is none.
//
// Errors: those of [shardmap.Directory.Members].
func Behind(ctx context.Context, dir shardmap.Directory, version uint64) (string, error) {
	members, err := dir.Members(ctx)
	if err != nil {
		return "", directoryError(err)
	}
	for _, m := range members {
		if m.Role != "coordinator" && m.Acknowledged < version {
			return m.Role + " " + m.Address + " on " + m.Host, nil
		}
	}
	return "", nil
}

// waits reports whether what was decided with a version of the map has to wait for a member, and says so.
func (f *Finding) waits(ctx context.Context, dir shardmap.Directory, version uint64) (bool, error) {
	who, err := Behind(ctx, dir, version)
	if err != nil || who == "" {
		return false, err
	}
	f.Level, f.Later = levelWarning, true
	f.What += "; it is decided, and waits for " + who + ", which still has statements under way by an older map"
	return true, nil
}

// AwaitMembers waits until every member runs its statements by a version of the map, or by a newer one, or is none any more.
//
// Errors: ctx's; 55P03 after max, with the member's name; those of [shardmap.Directory.Members], which are tried again until then.
func AwaitMembers(ctx context.Context, dir shardmap.Directory, version uint64, max time.Duration) error {
	bound, cancel := context.WithTimeout(ctx, max)
	defer cancel()
	who := "a member"
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		behind, err := Behind(bound, dir, version)
		switch {
		case err == nil && behind == "":
			return nil
		case err == nil:
			who = behind
		case bound.Err() == nil:
			who = "a member (" + sqlstate.As(err).Message + ")"
		}
		pause(bound, wait)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case bound.Err() != nil:
			return sqlstate.New(sqlstate.LockNotAvailable, "%s still has statements under way that began before version %d of the map", who, version).
				WithHint("run it again when they have ended; SELECT * FROM cleave.routers shows who follows the map")
		}
	}
}

// followed waits until every member goes by the decided change, if statements by the map before would look for a table of
// it where it is not, or was. Else the shards would hold the change's locks for nothing, and [Tx.known] waits.
func (t *Tx) followed(ctx context.Context) error {
	now, err := t.opts.Directory.Load(ctx)
	if err != nil {
		return directoryError(err)
	}
	if c := shardmap.Concerned(t.base, now); !c.Strangers() {
		return nil
	}
	t.waited = true
	return t.awaitMembers(ctx)
}

// known waits until every member knows a change that the shards have.
func (t *Tx) known(ctx context.Context) {
	if t.waited {
		return
	}
	if err := t.awaitMembers(context.WithoutCancel(ctx)); err != nil {
		t.notices = append(t.notices, &sqlstate.Error{
			Severity: "WARNING", Code: sqlstate.SuccessfulCompletion,
			Message: "the schema change is done, but another router may not know it yet",
			Detail:  sqlstate.As(err).Message,
			Hint:    "SELECT * FROM cleave.routers shows who follows the map",
		})
	}
}

func (t *Tx) awaitMembers(ctx context.Context) error {
	entry, err := t.opts.Directory.Find(ctx, t.id)
	if err != nil {
		return directoryError(err)
	}
	return AwaitMembers(ctx, t.opts.Directory, entry.Version, followMax)
}
