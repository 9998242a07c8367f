// Package schema holds the JSON Schema of what `omnitap compare --json` prints, generated
// from the Go types of exporter/compare. Within `schema: 1` fields may be added, so the
// schema allows members that it does not know. The generator is that of a calibration, too.
//
// Out of scope: validating. The program writes what its types say; the schema is for those
// who read it.
package schema

import _ "embed"

//go:generate go run ./internal/generate compare compare.schema.json

// Comparison is the schema of what compare --json prints.
//
//go:embed compare.schema.json
var Comparison []byte
