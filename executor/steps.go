package executor

import "time"

// This file is Run in steps, for a caller that talks with several shards at once.

// Dispatch is the first half of Run: it sends what was added, ended by end. Step
// takes the answers. After an error the Conn is broken.
func (p *Pipeline) Dispatch(end byte) error {
	p.finish(end)
	p.so = Outcome{}
	if len(p.out) == 0 {
		return nil
	}
	p.sent, p.received, p.tag = time.Now().UnixNano(), 0, p.tag[:0]
	p.Conn.asked.Store(p.sent)
	err := p.Conn.Send(p.out)
	p.out, p.statements = p.out[:0], 0
	if err != nil {
		p.Conn.broken = true
	}
	return err
}

// Step waits for answers once and relays them. done says that all have come: the
// Outcome is then whole. It returns early, not done, with Outcome.CopyIn when the
// shard waits for data; Copy sends that, and ResumeCopy has to precede the next Step.
func (p *Pipeline) Step(sink Sink) (o Outcome, done bool, err error) {
	if err := p.locals(sink); err != nil {
		p.Conn.broken = true
		return p.so, false, err
	}
	if p.head < len(p.queue) {
		b, err := p.Conn.Receive()
		if err != nil {
			p.Conn.broken = true
			return p.so, false, p.because(err, p.so.Err)
		}
		p.received += len(b)
		if err := p.relay(b, sink, &p.so); err != nil {
			p.Conn.broken = true
			return p.so, false, err
		}
		p.Conn.heard = true
		if p.so.CopyIn {
			p.Conn.asked.Store(0) // it waits for data
			return p.so, false, nil
		}
	}
	if p.head < len(p.queue) {
		return p.so, false, nil
	}
	o = p.so
	p.so = Outcome{}
	p.answered()
	return o, true, nil
}

// ResumeCopy says that the end of the data was sent.
func (p *Pipeline) ResumeCopy() { p.so.CopyIn = false }
