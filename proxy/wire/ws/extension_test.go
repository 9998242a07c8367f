package ws_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

var answers = []struct {
	accept         string
	client, server *ws.Deflate
	fault          string
}{
	{"", nil, nil, ""},
	{" , ,\t", nil, nil, ""},
	{"permessage-deflate", &ws.Deflate{WindowBits: 15}, &ws.Deflate{WindowBits: 15}, ""},
	{"Permessage-Deflate ;", &ws.Deflate{WindowBits: 15}, &ws.Deflate{WindowBits: 15}, ""},
	{"permessage-deflate; server_max_window_bits=12; client_max_window_bits=9", &ws.Deflate{WindowBits: 9}, &ws.Deflate{WindowBits: 12}, ""},
	{`, permessage-deflate;server_max_window_bits = "8" ;client_no_context_takeover`, &ws.Deflate{NoContextTakeover: true, WindowBits: 15}, &ws.Deflate{WindowBits: 8}, ""},
	{"permessage-deflate; server_no_context_takeover", &ws.Deflate{WindowBits: 15}, &ws.Deflate{NoContextTakeover: true, WindowBits: 15}, ""},
	{"x-webkit-deflate-frame", nil, nil, "x-webkit-deflate-frame"},
	{"permessage-deflate, foo; a=b", nil, nil, "foo"},
	{"permessage-deflate, permessage-deflate", nil, nil, "permessage-deflate"},
	{";client_no_context_takeover", nil, nil, `""`},
	{"permessage-deflate; client_max_window_bits", nil, nil, "client_max_window_bits"},
	{"permessage-deflate; server_max_window_bits", nil, nil, "server_max_window_bits"},
	{"permessage-deflate; server_max_window_bits=7", nil, nil, "=7"},
	{"permessage-deflate; server_max_window_bits=16", nil, nil, "=16"},
	{"permessage-deflate; server_max_window_bits=08", nil, nil, "=08"},
	{"permessage-deflate; server_max_window_bits=+9", nil, nil, "=+9"},
	{`permessage-deflate; server_max_window_bits="9`, nil, nil, "server_max"},
	{"permessage-deflate; server_no_context_takeover=1", nil, nil, "takeover=1"},
	{"permessage-deflate; server_no_context_takeover; server_no_context_takeover", nil, nil, "server_no_context_takeover"},
	{"permessage-deflate; client_max_window_bits=9; client_max_window_bits=9", nil, nil, "client_max_window_bits"},
	{"permessage-deflate; mode", nil, nil, "mode"},
	{"permessage-deflate; client_no_context_takeover;;", nil, nil, "parameter"},
}

func TestNegotiated(t *testing.T) {
	for _, a := range answers {
		client, server, err := ws.Negotiated(a.accept)
		if diff := cmp.Diff([]*ws.Deflate{a.client, a.server}, []*ws.Deflate{client, server}); diff != "" {
			t.Errorf("%q: -want +got:\n%s", a.accept, diff)
		}
		if (err != nil) != (a.fault != "") || err != nil && (!errors.Is(err, ws.ErrExtension) || !strings.Contains(err.Error(), a.fault)) {
			t.Errorf("%q: error %v, want one about %q", a.accept, err, a.fault)
		}
	}
}

// FuzzNegotiated: what is read is whole and in range.
func FuzzNegotiated(f *testing.F) {
	for _, a := range answers {
		f.Add(a.accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		client, server, err := ws.Negotiated(accept)
		if (client == nil) != (server == nil) || err != nil && (client != nil || !errors.Is(err, ws.ErrExtension)) {
			t.Fatalf("%v %v %v", client, server, err)
		}
		if client == nil {
			return
		}
		for _, d := range []*ws.Deflate{client, server} {
			if d.WindowBits < 8 || d.WindowBits > 15 {
				t.Fatalf("%d bits", d.WindowBits)
			}
		}
	})
}

func TestCloseCode(t *testing.T) {
	for _, c := range []struct {
		in     string
		code   int
		reason string
		ok     bool
	}{
		{"", 0, "", true},
		{"\x03", 0, "", false},
		{"\x03\xe8", 1000, "", true},
		{"\x03\xe8bye κ", 1000, "bye κ", true},
		{"\x03\xe8\xff", 1000, "\xff", false},
		{"\x03\xea\xce", 1002, "\xce", false},
	} {
		code, reason, ok := ws.CloseCode([]byte(c.in))
		if code != c.code || reason != c.reason || ok != c.ok {
			t.Errorf("%q: %d %q %t", c.in, code, reason, ok)
		}
	}
	allowed := map[int]bool{1000: true, 1001: true, 1002: true, 1003: true}
	for code := 1007; code <= 1014; code++ {
		allowed[code] = true
	}
	for code := range 1 << 16 {
		got, _, ok := ws.CloseCode([]byte{byte(code >> 8), byte(code)})
		if got != code || ok != (allowed[code] || code >= 3000 && code <= 4999) {
			t.Errorf("%d: %d %t", code, got, ok)
		}
	}
}
