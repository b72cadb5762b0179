package shardmap

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"

	"github.com/cleavedb/cleave/sqlstate"
)

// MaxStateBytes bounds the JSON form of a map, bytes. Nothing larger is stored
// or decoded.
const MaxStateBytes = 64 << 20

// EncodeState returns the JSON form of a state. It holds the shards' URLs, and
// so may hold passwords. Error: 54000 if it exceeds MaxStateBytes.
func EncodeState(s *State) ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the shard map cannot be encoded")
	}
	if len(b) > MaxStateBytes {
		return nil, invalid(sqlstate.ProgramLimitExceeded, "the shard map takes %d bytes; %d are allowed", len(b), MaxStateBytes)
	}
	return b, nil
}

// DecodeState parses what EncodeState wrote. It refuses another format, unknown
// fields (writing them back would lose them) and anything after the state. The
// state is not validated: [NewSnapshot] does that.
//
// Errors: 55000 for another format, XX001 for what is no state at all.
func DecodeState(b []byte) (State, error) {
	if len(b) > MaxStateBytes {
		return State{}, sqlstate.New(sqlstate.ProgramLimitExceeded, "the stored shard map takes %d bytes; %d are allowed", len(b), MaxStateBytes)
	}
	// The format first: a newer form may well have fields that are unknown here.
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return State{}, corrupt(err)
	}
	if head.Format != Format {
		return State{}, formatError(head.Format)
	}
	var s State
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return State{}, corrupt(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return State{}, corrupt(errors.New("more bytes follow"))
	}
	return s, nil
}

func corrupt(err error) error {
	return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the stored shard map cannot be read").
		WithHint("bring the directory back from a backup, or start an empty cluster: cleave up --data NEW_FOLDER")
}

// Pack returns a snapshot as directories store it: the JSON form, compressed,
// with a checksum. Ten thousand ranges take some 100 KB.
func Pack(s *Snapshot) ([]byte, error) {
	b, err := EncodeState(&s.state)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	// The fastest level: a change waits for it, and history is read rarely.
	z, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the shard map cannot be compressed")
	}
	if _, err := z.Write(b); err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the shard map cannot be compressed")
	}
	if err := z.Close(); err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.InternalError, "the shard map cannot be compressed")
	}
	return buf.Bytes(), nil
}

// Unpack reads what Pack returned. Nothing that bytes may say makes it panic or
// take memory beyond a small multiple of MaxStateBytes. Errors: XX001 for
// damaged bytes, those of DecodeState and NewSnapshot, and 42P17 for a state
// that no directory can have stored (without a version, or without epochs).
func Unpack(b []byte) (*Snapshot, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, corrupt(err)
	}
	raw, err := io.ReadAll(io.LimitReader(z, MaxStateBytes+1))
	if err != nil {
		return nil, corrupt(err)
	}
	return DecodeSnapshot(raw)
}

// DecodeSnapshot is DecodeState and NewSnapshot for a stored version: it also
// demands what Update always writes, a version and an epoch for each assignment.
func DecodeSnapshot(b []byte) (*Snapshot, error) {
	s, err := DecodeState(b)
	if err != nil {
		return nil, err
	}
	snap, err := build(s)
	if err != nil {
		return nil, err
	}
	if s.Version == 0 || s.SchemaVersion == 0 {
		return nil, invalid(sqlstate.InvalidObjectDefinition, "the stored shard map has no version")
	}
	for i := range snap.state.Keyspaces {
		k := &snap.state.Keyspaces[i]
		zero := false
		for j := range k.Ranges {
			zero = zero || k.Ranges[j].Epoch == 0
		}
		for j := range k.Values {
			zero = zero || k.Values[j].Epoch == 0
		}
		for j := range k.Pins {
			zero = zero || k.Pins[j].Epoch == 0
		}
		for j := range k.Transits {
			zero = zero || k.Transits[j].Epoch == 0
		}
		if zero {
			return nil, invalid(sqlstate.InvalidObjectDefinition, "an assignment or transit of keyspace %q has no epoch", k.Name)
		}
	}
	return snap, nil
}
