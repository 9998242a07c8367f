package ws

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Deflate is what was negotiated of permessage-deflate for one direction.
type Deflate struct {
	// NoContextTakeover says that each message is compressed on its own
	// (RFC 7692 section 7.1.1).
	NoContextTakeover bool
	// WindowBits is the base-2 logarithm of the window in bytes, 8 to 15
	// (RFC 7692 section 7.1.2); anything else means 15.
	WindowBits int
}

// Negotiated reads the Sec-WebSocket-Extensions of a 101 answer, several of
// them joined by commas (RFC 6455 section 9.1, RFC 7692 section 7.1): what it
// says of each direction, nil and nil for no extension. The error wraps
// ErrExtension and names the extension or the parameter.
func Negotiated(accept string) (client, server *Deflate, err error) {
	for ext := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(ext, ";")
		name = strings.Trim(name, " \t")
		switch {
		case name == "" && strings.Trim(ext, " \t") == "": // RFC 9110 section 5.6.1: empty elements
			continue
		case !strings.EqualFold(name, "permessage-deflate") || client != nil:
			return nil, nil, fmt.Errorf("%w: %.64q", ErrExtension, name)
		}
		client, server = &Deflate{WindowBits: 15}, &Deflate{WindowBits: 15}
		if err := parameters(params, client, server); err != nil {
			return nil, nil, err
		}
	}
	return client, server, nil
}

// parameters reads what follows the extension's name.
func parameters(s string, client, server *Deflate) error {
	if strings.Trim(s, " \t") == "" {
		return nil
	}
	seen := map[string]bool{}
	for param := range strings.SplitSeq(s, ";") {
		name, value, has := strings.Cut(param, "=")
		name, value = strings.ToLower(strings.Trim(name, " \t")), strings.Trim(value, " \t")
		ok := !seen[name]
		seen[name] = true
		switch name {
		case "client_no_context_takeover":
			ok, client.NoContextTakeover = ok && !has, true
		case "server_no_context_takeover":
			ok, server.NoContextTakeover = ok && !has, true
		case "client_max_window_bits":
			client.WindowBits = windowBits(value)
			ok = ok && client.WindowBits > 0
		case "server_max_window_bits":
			server.WindowBits = windowBits(value)
			ok = ok && server.WindowBits > 0
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("%w: parameter %.64q", ErrExtension, param)
		}
	}
	return nil
}

// windowBits reads 8 to 15 without leading zeros (RFC 7692 section 7.1.2), bare
// or quoted; 0 is for anything else. In an answer the value is not optional.
func windowBits(s string) int {
	if len(s) > 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 8 || n > 15 || s != strconv.Itoa(n) {
		return 0
	}
	return n
}

// CloseCode reads a close frame's payload (RFC 6455 section 5.5.1): 0 and true
// for an empty one, for 1005 is never on the wire. It is not ok where the code
// is cut short or must not be sent (RFC 6455 section 7.4) or the reason is not
// UTF-8; code and reason are then given as they stand.
func CloseCode(payload []byte) (code int, reason string, ok bool) {
	if len(payload) < 2 {
		return 0, "", len(payload) == 0
	}
	code, reason = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
	switch {
	case code < 1000, code >= 1004 && code <= 1006, code >= 1015 && code < 3000, code > 4999:
		return code, reason, false
	}
	return code, reason, utf8.ValidString(reason)
}
