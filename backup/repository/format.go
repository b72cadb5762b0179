package repository

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An object as it is stored:
//
//	cleave object 1 REPOSITORY ENCODING NAME\n    head: a line of text, which binds the bytes to their name
//	payload                                       zstd frames, or age around them
//	\ncleave end 1 BYTES SHA256\n                 foot: the number of bytes before it, and the SHA-256 of all before the sum
//
// The payload's zstd frames end with a skippable frame (RFC 8878, 3.1.2), the seal: size and SHA-256 of the content, the
// repository and the name. It is inside of the encryption, which the foot is not. Tools need no Cleave to read it:
//
//	tail -n +2 FILE | head -c -100 | age -d -i KEY | zstd -d

// Encodings of payloads.
const (
	encodingPlain  = "zstd"
	encodingSealed = "zstd+age"
)

const (
	footLength = len("\ncleave end 1 ") + 20 + 1 + 64 + 1
	// maxHead is more than the longest head.
	maxHead = maxName + 128
)

type head struct {
	repository, encoding, name string
}

func (h head) line() []byte {
	return fmt.Appendf(nil, "cleave object 1 %s %s %s\n", h.repository, h.encoding, h.name)
}

var errNoHead = errors.New("it does not begin as an object of a repository does")

// parseHead reads the first line of an object. It takes nothing that line would not write.
func parseHead(line []byte) (h head, err error) {
	f := strings.Split(string(line), " ")
	if len(f) != 6 {
		return h, errNoHead
	}
	h = head{f[3], f[4], strings.TrimSuffix(f[5], "\n")}
	if CheckName(h.name) != nil || !isID(h.repository) || h.encoding != encodingPlain && h.encoding != encodingSealed ||
		!bytes.Equal(h.line(), line) {
		return head{}, errNoHead
	}
	return h, nil
}

// footBefore is the foot without its sum.
func footBefore(stored int64) []byte { return fmt.Appendf(nil, "\ncleave end 1 %020d ", stored) }

// foot returns the end of an object; sum is that of all bytes before the sum.
func foot(stored int64, sum []byte) []byte {
	return append(hex.AppendEncode(footBefore(stored), sum), '\n')
}

// parseFoot reads the end of an object, and takes nothing that foot would not write.
func parseFoot(b []byte) (stored int64, sum []byte, ok bool) {
	if len(b) != footLength {
		return 0, nil, false
	}
	digits := b[len("\ncleave end 1 "):][:20]
	stored, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || stored < 0 {
		return 0, nil, false
	}
	sum, err = hex.DecodeString(string(b[footLength-65 : footLength-1]))
	return stored, sum, err == nil && bytes.Equal(b, foot(stored, sum))
}

// sealMagic is one of the sixteen numbers of skippable frames (RFC 8878, 3.1.2).
const sealMagic = 0x184D2A5C

// seal returns the last frame of a payload.
func seal(size int64, sum []byte, repository, name string) []byte {
	bound := repository + "/" + name
	b := binary.LittleEndian.AppendUint32(nil, sealMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(8+sha256.Size+len(bound)))
	b = binary.LittleEndian.AppendUint64(b, uint64(size))
	b = append(b, sum...)
	return append(b, bound...)
}

func sealLength(repository, name string) int {
	return 4 + 4 + 8 + sha256.Size + len(repository) + 1 + len(name)
}

// parseSeal reads the seal of the object with this name; ok is false for everything that seal would not write for it.
func parseSeal(b []byte, repository, name string) (size int64, sum []byte, ok bool) {
	if len(b) != sealLength(repository, name) {
		return 0, nil, false
	}
	size = int64(binary.LittleEndian.Uint64(b[8:]))
	sum = bytes.Clone(b[16 : 16+sha256.Size])
	return size, sum, size >= 0 && bytes.Equal(b, seal(size, sum, repository, name))
}

// isID says whether a text can be the id of a repository.
func isID(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 32 && strings.ToLower(s) == s
}
