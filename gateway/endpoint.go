package gateway

import (
	"strconv"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// endpointRows are those of cleave.endpoints: the servers as this router's probes
// found them last.
func (s *Server) endpointRows() [][]engine.Text {
	null := engine.Text{Null: true}
	float := func(v float64) engine.Text { return text(strconv.FormatFloat(v, 'f', 3, 64)) }
	var rows [][]engine.Text
	for _, e := range s.ex.Endpoints() {
		health, reason := "up", ""
		if !e.Up {
			health = "down"
		}
		if e.Err != nil {
			reason = sqlstate.As(e.Err).Message
		}
		timeline, bytes, lag, latency := null, null, null, null
		if e.Timeline > 0 {
			timeline, latency = number(e.Timeline), float(float64(e.Latency.Microseconds())/1000)
		}
		if e.LagBytes >= 0 {
			bytes = number(e.LagBytes)
		}
		if e.Lag >= 0 {
			lag = float(e.Lag.Seconds())
		}
		rows = append(rows, []engine.Text{text(e.Shard), text(shardmap.Redacted(e.URL)), orNull(string(e.Role)), orNull(string(e.Serves)),
			text(health), orNull(reason), timeline, bytes, lag, latency, yes(e.Local), number(e.Open), number(e.Idle)})
	}
	return rows
}
