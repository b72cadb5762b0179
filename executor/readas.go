package executor

import "github.com/cleavedb/cleave/internal/wire"

// readName is the statement, and the portal, by which readAs changes settings. It is closed at once.
const readName = "cleave_read"

// readAs gives the Conn those of the settings that decide what a text means, for the next Parse. It returns what
// puts them back, for setQuietly: none if they are the Conn's already. They last until the transaction ends at most, which an
// error between the two ends as well, so that the Conn's settings are what they were in every case.
func (p *Pipeline) readAs(s *Settings) (restore []string) {
	if p.Conn.pool == nil || s.ReadsAs(p.Conn.settings) {
		return nil
	}
	to, from := s.readings(), p.Conn.settings.readings()
	p.setQuietly(locally(to.changes(from)))
	return locally(from.changes(to))
}

// setQuietly runs SET LOCAL statements, of which the client sees nothing. They have a name, since the client's unnamed
// statement and portal stay.
func (p *Pipeline) setQuietly(statements []string) {
	for _, sql := range statements {
		p.out = wire.AppendParse(p.out, readName, sql, nil)
		p.expect(expected{what: anParse, swallow: true})
		p.bind(readName, readName, []byte{0, 0, 0, 0, 0, 0}, false)
		p.out = wire.AppendExecute(p.out, readName, 0)
		p.expect(expected{what: anExecute, swallow: true, quiet: true})
		p.Close(readName, false)
		p.out = wire.AppendClose(p.out, 'S', readName)
		p.expect(expected{what: anClose, swallow: true})
	}
}
