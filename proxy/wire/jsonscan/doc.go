// Package jsonscan finds values in a JSON text without copying it (RFC 8259).
//
// Why not a library: the events at hand are one large base64 string with two
// dozen small fields around it, thousands of times a second, and the string
// must be neither unescaped nor copied. encoding/json and jsontext walk it byte
// by byte; here a string costs one search for its closing quote.
//
//	var d jsonscan.Doc
//	if err := d.Parse(data); err != nil { … }
//	s, ok := d.Root().Get("choices").Index(0).Get("delta").Get("content").Text(nil)
//
// A Doc is used again and again; its Values point into the bytes given to
// Parse and are valid until the next Parse or until these change. The grammar is
// checked whole; invalid UTF-8 inside strings is not (Text passes it through).
// Of members with one name the last counts, as in the servers' own parsers.
// It writes no JSON and maps nothing to Go types.
package jsonscan
