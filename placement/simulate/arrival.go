package simulate

import "bytes"

// lags are the distances, in rows, at which keys are compared with earlier ones.
// Timestamps that several clients write are not in order row by row, but a
// thousand rows later all are greater.
var lags = [...]int{1, 32, 1024}

// arrivalMin is how many comparisons a verdict needs.
const arrivalMin = 100

// arrival watches whether keys rise or fall in the order in which they come.
type arrival struct {
	rows       uint64
	ring       [1024][]byte // the last encoded keys
	rise, fall [len(lags)]uint64
}

func (a *arrival) add(encoded []byte) {
	if len(encoded) > encodedMax {
		encoded = encoded[:encodedMax]
	}
	for i, lag := range lags {
		if a.rows < uint64(lag) {
			break
		}
		switch c := bytes.Compare(encoded, a.ring[(a.rows-uint64(lag))%uint64(len(a.ring))]); {
		case c > 0:
			a.rise[i]++
		case c < 0:
			a.fall[i]++
		}
	}
	at := a.rows % uint64(len(a.ring))
	a.ring[at] = append(a.ring[at][:0], encoded...)
	a.rows++
}

// rising returns the share of rows whose key is above that of an earlier row,
// of those whose keys differ, at the longest distance with enough rows. lag is
// 0 if there are too few: then nothing can be said.
func (a *arrival) rising() (share float64, lag int) {
	for i := len(lags) - 1; i >= 0; i-- {
		if n := a.rise[i] + a.fall[i]; n >= arrivalMin {
			return float64(a.rise[i]) / float64(n), lags[i]
		}
	}
	return 0, 0
}
