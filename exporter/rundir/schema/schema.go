// Package schema holds the JSON Schemas of requests.jsonl, sessions.jsonl, quality.jsonl and
// events.jsonl, generated from the Go types of proxy/timeline. Within `schema: 1` fields may be added, so the schema
// allows members that it does not know.
//
// Out of scope: validating. The program writes what its types say; the schema is
// for those who read the files.
package schema

import _ "embed"

//go:generate go run ./internal/generate requests.schema.json sessions.schema.json quality.schema.json events.schema.json

// Requests is the schema of one line of requests.jsonl.
//
//go:embed requests.schema.json
var Requests []byte

// Sessions is the schema of one line of sessions.jsonl.
//
//go:embed sessions.schema.json
var Sessions []byte

// Quality is the schema of one line of quality.jsonl.
//
//go:embed quality.schema.json
var Quality []byte

// Events is the schema of one line of events.jsonl.
//
//go:embed events.schema.json
var Events []byte
