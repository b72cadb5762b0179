package heat

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Sketch finds the keys that are named most often, in bounded memory: the space-saving
// algorithm of Metwally, Agrawal and El Abbadi (Efficient Computation of Frequent and Top-k
// Elements in Data Streams, 2005), whose counts also fade. A key with more than 1/size of
// all is in it for certain, and its count is too high by Error at most. Safe for
// concurrent use.
type Sketch struct {
	mu    sync.Mutex
	size  int
	all   float64
	place map[string]int
	list  []Counted
}

// Counted is one key of a Sketch.
type Counted struct {
	Key   string
	Count float64 // at most Error too high
	Error float64
}

// KeyMax bounds the key that a Sketch keeps, bytes; a longer one is left out.
const KeyMax = 256

// NewSketch makes one of that many keys.
func NewSketch(size int) *Sketch {
	return &Sketch{size: size, place: make(map[string]int, size)}
}

// Add counts a key once. It waits for nobody: while another one is counted it does
// nothing and returns false.
func (s *Sketch) Add(key string) bool { return s.AddTimes(key, 1) }

// AddTimes is Add for a key that stands for n which are not looked at.
func (s *Sketch) AddTimes(key string, n float64) bool {
	if len(key) > KeyMax || !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	s.all += n
	if i, ok := s.place[key]; ok {
		s.list[i].Count += n
		return true
	}
	if len(s.list) < s.size {
		s.place[strings.Clone(key)] = len(s.list)
		s.list = append(s.list, Counted{Key: strings.Clone(key), Count: n})
		return true
	}
	least := 0
	for i := range s.list {
		if s.list[i].Count < s.list[least].Count {
			least = i
		}
	}
	c := &s.list[least]
	delete(s.place, c.Key)
	*c = Counted{Key: strings.Clone(key), Count: c.Count + n, Error: c.Count}
	s.place[c.Key] = least
	return true
}

// Fade multiplies all counts, so that what is long ago counts less.
func (s *Sketch) Fade(by float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all *= by
	kept := s.list[:0]
	clear(s.place)
	for _, c := range s.list {
		if c.Count, c.Error = c.Count*by, c.Error*by; c.Count < least {
			continue
		}
		s.place[c.Key] = len(kept)
		kept = append(kept, c)
	}
	clear(s.list[len(kept):])
	s.list = kept
}

// Top returns the keys that certainly have at least that share of all, those with the
// greatest counts first, at most n, and the count of all.
func (s *Sketch) Top(n int, share float64) (top []Counted, all float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.list {
		if c.Count-c.Error >= share*s.all {
			top = append(top, c)
		}
	}
	slices.SortFunc(top, func(a, b Counted) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key, b.Key))
	})
	return top[:min(n, len(top))], s.all
}
