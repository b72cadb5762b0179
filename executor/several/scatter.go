package several

import "context"

// scatter runs a text on each shard of the target and puts the rows one after
// the other.
type scatter struct {
	streams []*stream
	at      int
}

func (c *Conn) startScatter(ctx context.Context, e *execution) (job, error) {
	shards, err := e.st.Plan.Target.Shards(c.host.Snapshot(), e.args)
	if err != nil {
		return nil, err
	}
	parts, err := c.partsOf(ctx, shards, !e.st.ReadOnly)
	if err != nil {
		return nil, err
	}
	j := &scatter{}
	for _, p := range parts {
		s, err := c.send(p, e.request(e.st.Plan.Text))
		if err != nil {
			return nil, err
		}
		j.streams = append(j.streams, s)
	}
	return j, nil
}

func (j *scatter) step(out []byte, rows int32) ([]byte, bool, string, error) {
	for j.at < len(j.streams) {
		b, err := j.streams[j.at].chunk(rows)
		if err != nil {
			return out, false, "", err
		}
		if b != nil {
			return append(out, b...), false, "", nil
		}
		j.at++
	}
	return out, true, "SELECT", nil
}

func (j *scatter) stop() {
	for _, s := range j.streams {
		s.stop()
	}
}
