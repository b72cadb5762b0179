package executor

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/telemetry"
)

const (
	// rememberEvery is how often a group compares its timeline with the directory's.
	rememberEvery = 5 * time.Second
	// rememberMax bounds one look, and how long a group that begins waits for it.
	rememberMax = 2 * time.Second
)

// remember keeps the highest timeline of the shard in the directory, and learns
// it from there: so that a router that starts while the promoted server cannot
// be reached does not take an old primary for the shard's.
func (g *group) remember(ctx context.Context) {
	t := time.NewTicker(rememberEvery)
	defer t.Stop()
	for {
		err := g.compare(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, shardmap.ErrConflict) {
			g.ex.log.Warn("the timeline of a shard could not be compared with the directory's", telemetry.KeyShard, g.name, telemetry.KeyError, err)
		}
		g.learn(0)
		if errors.Is(err, shardmap.ErrConflict) {
			continue // another router wrote it: look again
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-g.grown:
		}
	}
}

// compare reads the record and writes it if it is behind.
func (g *group) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rememberMax)
	defer cancel()
	rec, err := g.ex.directory.Record(ctx, shardmap.TimelineRecord(g.name))
	if err != nil && !errors.Is(err, shardmap.ErrNotFound) {
		return err
	}
	g.mu.Lock()
	system := g.system
	g.mu.Unlock()
	was := uint32(0)
	if is, text, ok := strings.Cut(string(rec.Value), " "); ok && is == system {
		n, err := strconv.ParseUint(text, 10, 32)
		if err == nil {
			was = uint32(n)
		}
	}
	g.learn(was)
	g.mu.Lock()
	now := g.timeline
	g.mu.Unlock()
	if now <= was {
		return nil
	}
	_, err = g.ex.directory.PutRecord(ctx, shardmap.TimelineRecord(g.name), []byte(system+" "+strconv.FormatUint(uint64(now), 10)), rec.Revision)
	return err
}

// learn takes a timeline that another router saw. From the first time on servers
// can be elected.
func (g *group) learn(timeline uint32) {
	g.mu.Lock()
	if g.closed || g.recalled && timeline <= g.timeline {
		g.mu.Unlock()
		return
	}
	was, wasSettled := g.primary, g.settled
	g.recalled = true
	g.timeline = max(g.timeline, timeline)
	g.elect()
	g.show()
	g.after(was, wasSettled)
}

// after tells of what an election changed, and unlocks g.mu.
func (g *group) after(was *endpoint, wasSettled bool) {
	now, why, timeline := g.primary, g.why, g.timeline
	if now != was || wasSettled != g.settled {
		g.tell()
	}
	g.mu.Unlock()
	if now == was {
		return
	}
	g.ex.publish(g)
	if now == nil {
		g.ex.log.Error("a shard has no primary", telemetry.KeyShard, g.name, "reason", why)
		return
	}
	select {
	case g.grown <- struct{}{}:
	default: // it is looked at soon
	}
	g.ex.log.Info("a shard's primary is known", telemetry.KeyShard, g.name, "server", now.place(), "timeline", timeline)
}
