package admin

import "github.com/cleavedb/cleave/workflow"

// MoveBounds are the bounds of MoveOptions that can be changed while rows are moved; nil: as it is.
type MoveBounds struct {
	RowsPerSecond  *int64  `json:"rows_per_second,omitempty"`
	BytesPerSecond *int64  `json:"bytes_per_second,omitempty"`
	MaxLatency     *string `json:"max_latency,omitempty"` // "": what adapts itself
	MaxLag         *string `json:"max_lag,omitempty"`     // "": the default
	MaxLagBytes    *int64  `json:"max_lag_bytes,omitempty"`
}

// bounds checks them, as those of a new move are.
func (m *MoveBounds) bounds() (*workflow.Bounds, error) {
	if m == nil {
		return nil, nil
	}
	var all MoveOptions
	set := func(into, from *int64) {
		if from != nil {
			*into = *from
		}
	}
	set(&all.RowsPerSecond, m.RowsPerSecond)
	set(&all.BytesPerSecond, m.BytesPerSecond)
	set(&all.MaxLagBytes, m.MaxLagBytes)
	if m.MaxLatency != nil {
		all.MaxLatency = *m.MaxLatency
	}
	if m.MaxLag != nil {
		all.MaxLag = *m.MaxLag
	}
	o, err := all.options(workflow.DefaultKeepMS)
	if err != nil {
		return nil, err
	}
	given := func(is bool, n int64) *int64 {
		if !is {
			return nil
		}
		return &n
	}
	return &workflow.Bounds{
		RowsPerSecond: given(m.RowsPerSecond != nil, o.RowsPerSecond), BytesPerSecond: given(m.BytesPerSecond != nil, o.BytesPerSecond),
		MaxLatencyMS: given(m.MaxLatency != nil, o.MaxLatencyMS), MaxLagMS: given(m.MaxLag != nil, o.MaxLagMS), MaxLagBytes: given(m.MaxLagBytes != nil, o.MaxLagBytes),
	}, nil
}
