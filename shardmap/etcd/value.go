package etcd

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// inlineMax is what one value of a change's transaction may hold. State and
	// entry together stay below etcd's bound of 1.5 MiB for a request.
	inlineMax = 512 << 10
	// partMax is the size of each part of what is larger, written one by one
	// before the transaction. Nobody looks at parts to which no state or entry
	// refers; those of changes that came to nothing are removed by the change
	// that did become the version, or by their author.
	partMax = 1 << 20
	// entryMax bounds an unpacked line of history, bytes.
	entryMax = 64 << 20
)

// A stored value begins with the number of the change that wrote it, and the
// number of parts; 0 parts: the content follows.
const headBytes = 16 + 4

func seal(nonce uuid.UUID, parts int, content []byte) string {
	b := make([]byte, 0, headBytes+len(content))
	b = append(b, nonce[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(parts))
	return string(append(b, content...))
}

// open splits a stored value.
func unseal(value []byte) (nonce uuid.UUID, parts int, content []byte, err error) {
	if len(value) < headBytes {
		return nonce, 0, nil, sqlstate.New(sqlstate.DataCorrupted, "a value of the directory in etcd is cut off")
	}
	copy(nonce[:], value)
	return nonce, int(binary.BigEndian.Uint32(value[16:])), value[headBytes:], nil
}

func (d *directory) stateKey(version uint64) string {
	return fmt.Sprintf("%smap/state/%020d", d.root, version)
}
func (d *directory) entryKey(version uint64) string {
	return fmt.Sprintf("%smap/entry/%020d", d.root, version)
}
func (d *directory) idKey(id string) string { return d.root + "map/id/" + id }

// partsKey begins the keys of a version's parts; kind is "state" or "entry".
func (d *directory) partsKey(version uint64, nonce uuid.UUID, kind string) string {
	key := fmt.Sprintf("%smap/part/%020d/", d.root, version)
	if kind == "" {
		return key
	}
	return key + nonce.String() + "/" + kind + "/"
}

// put writes what is too large for the transaction, and returns the value that
// refers to it, or holds it.
func (d *directory) place(ctx context.Context, version uint64, nonce uuid.UUID, kind string, content []byte) (string, error) {
	if len(content) <= inlineMax {
		return seal(nonce, 0, content), nil
	}
	parts := 0
	for rest := content; len(rest) > 0; parts++ {
		part := rest[:min(partMax, len(rest))]
		rest = rest[len(part):]
		key := fmt.Sprintf("%s%06d", d.partsKey(version, nonce, kind), parts)
		err := d.ask(ctx, "write", func(ctx context.Context) error {
			_, err := d.client.Put(ctx, key, string(part))
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return seal(nonce, parts, nil), nil
}

// content returns what a stored value holds or refers to.
func (d *directory) content(ctx context.Context, version uint64, kind string, value []byte) ([]byte, error) {
	nonce, parts, content, err := unseal(value)
	if err != nil || parts == 0 {
		return content, err
	}
	var all []byte
	for n := range parts {
		key := fmt.Sprintf("%s%06d", d.partsKey(version, nonce, kind), n)
		var res *clientv3.GetResponse
		err := d.ask(ctx, "read", func(ctx context.Context) (err error) {
			// A part never changes: any server's word will do.
			res, err = d.client.Get(ctx, key)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(res.Kvs) == 0 {
			return nil, sqlstate.New(sqlstate.DataCorrupted, "part %d of %d of version %d of the shard map is missing in etcd", n+1, parts, version)
		}
		all = append(all, res.Kvs[0].Value...)
	}
	return all, nil
}

func (d *directory) snapshot(ctx context.Context, version uint64, value []byte) (*shardmap.Snapshot, error) {
	packed, err := d.content(ctx, version, "state", value)
	if err != nil {
		return nil, err
	}
	snap, err := shardmap.Unpack(packed)
	if err != nil {
		return nil, err
	}
	if snap.Version() != version {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "version %d of the shard map is stored as version %d", snap.Version(), version)
	}
	return snap, nil
}

// packEntry returns a line of history as it is stored: JSON, compressed, since
// it may hold a statement.
func packEntry(e shardmap.Entry) ([]byte, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	err = z.Close()
	return buf.Bytes(), err
}

func (d *directory) entry(ctx context.Context, version uint64, value []byte) (e shardmap.Entry, err error) {
	packed, err := d.content(ctx, version, "entry", value)
	if err != nil {
		return e, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		var raw []byte
		if raw, err = io.ReadAll(io.LimitReader(z, entryMax)); err == nil {
			err = json.Unmarshal(raw, &e)
		}
	}
	if err != nil || e.Version != version {
		return e, sqlstate.Wrap(err, sqlstate.DataCorrupted, "the history of version %d cannot be read", version)
	}
	e.At = e.At.UTC()
	return e, nil
}
