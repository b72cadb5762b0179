package keyspace

import "encoding/binary"

// AppendOrdered appends an encoding of the key whose order as bytes is the order
// of the keys (see [CompareKeys]) among keys of the same types. The encoding of
// a prefix of a key is a prefix of the key's encoding, and no other key's
// encoding begins with it.
//
// Numbers are 8 bytes, big-endian, with the sign bit flipped, so integer types
// encode alike. uuid is its 16 bytes. Text and bytea are their bytes with 00
// written as 00 FF, and end with 00 01.
func AppendOrdered(dst []byte, k Key) []byte {
	for i := range k {
		v := &k[i]
		switch {
		case v.typ == UUID:
			dst = append(dst, v.str...)
		case typeInfos[v.typ].str:
			dst = appendTerminated(dst, v.str)
		default:
			dst = binary.BigEndian.AppendUint64(dst, uint64(v.num)^1<<63)
		}
	}
	return dst
}

func appendTerminated(dst []byte, s string) []byte {
	for {
		i := 0
		for i < len(s) && s[i] != 0 {
			i++
		}
		dst = append(dst, s[:i]...)
		if i == len(s) {
			return append(dst, 0, 1)
		}
		dst = append(dst, 0, 0xff)
		s = s[i+1:]
	}
}
