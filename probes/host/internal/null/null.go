// Package null puts down what was not measured: values are pointers, nil ones have a
// reason under their name. It also makes what others named fit to be shown.
package null

import (
	"strings"

	"github.com/omnitap/omnitap/probes/host"
)

// Reasons are the names of what was not measured, with the reasons.
type Reasons map[string]string

// Value is a pointer to a value, or nil with the reason put down.
func Value[T any](r Reasons, name string, v T, err error) *T {
	if err != nil {
		r[name] = host.Reason(err)
		return nil
	}
	return &v
}

// MaxText is how many bytes of a name that others chose are kept.
const MaxText = 200

// Text makes something that others named fit to be shown: valid, and short.
func Text(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= MaxText {
		return s
	}
	return strings.ToValidUTF8(s[:MaxText], "") + "…"
}
