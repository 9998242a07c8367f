package session

import (
	"encoding/base64"
	"encoding/json"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/wire"
)

// message is a client's JSON message, or an object inside of one.
type message struct {
	kind   string // type; "" if the message is no JSON object with one
	fields map[string]json.RawMessage
	binary bool
	ns     int64 // when it was read
}

func parseMessage(r wire.Received) message {
	m := message{ns: r.NS, binary: r.Op == wire.OpBinary}
	if json.Unmarshal(r.Data, &m.fields) != nil {
		m.fields = nil
	}
	m.kind = m.str("type")
	return m
}

// get reads a field; absent and of another type is the zero value.
func get[T any](m message, key string) T {
	var v T
	if json.Unmarshal(m.fields[key], &v) != nil {
		var zero T
		return zero
	}
	return v
}

func (m message) str(key string) string { return get[string](m, key) }
func (m message) flag(key string) bool  { return get[bool](m, key) }
func (m message) has(key string) bool   { return len(m.fields[key]) > 0 }

// sub is an object inside of the message; absent is empty.
func (m message) sub(key string) message {
	return message{fields: get[map[string]json.RawMessage](m, key), ns: m.ns}
}

// audio decodes the samples of the message; nil if they are no base64.
func (m message) audio() []byte {
	b, err := base64.StdEncoding.DecodeString(m.str("audio"))
	if err != nil {
		return nil
	}
	return b
}

// value is a field that can be written again, nil if it is absent.
func (m message) value(key string) any {
	v, err := ordered.Parse(m.fields[key])
	if err != nil {
		return nil
	}
	return v
}

// mock is the script that a message brings, at its top or in its session.
func (m message) mock() []byte {
	if own := m.fields["mock"]; len(own) > 0 {
		return own
	}
	return m.sub("session").fields["mock"]
}
