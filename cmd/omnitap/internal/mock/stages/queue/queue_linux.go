// Package queue is the rule of vLLM-Omni's first generation for data that go with a
// queue item: up to a threshold they stand in it, above it in a segment that it names
// and that the receiver unlinks.
package queue

import (
	"errors"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/pickle"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
)

// Close returns the entry that carries data: inline under that name, or the segment's
// name and size under segment.
func Close(t *shm.Tracker, data []byte, threshold int, inline, segment string) (pickle.Item, error) {
	if len(data) <= threshold {
		return pickle.Item{Key: inline, Value: data}, nil
	}
	name, err := shm.Send(t, data)
	if err != nil {
		return pickle.Item{}, err
	}
	return pickle.Item{Key: segment, Value: pickle.Dict{{Key: "name", Value: name}, {Key: "size", Value: len(data)}}}, nil
}

// Open returns the data of an item that Close made.
func Open(t *shm.Tracker, d pickle.Dict, inline, segment string) ([]byte, error) {
	if b, ok := d.Get(inline).([]byte); ok {
		return b, nil
	}
	s, ok := d.Get(segment).(pickle.Dict)
	if !ok {
		return nil, errors.New("an item with neither " + inline + " nor " + segment)
	}
	return shm.Receive(t, s.Str("name"), s.Int("size"))
}
