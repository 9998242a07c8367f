// Package schema holds the JSON Schema of calibration.json, generated from the Go types of
// exporter/calibration by the generator of exporter/compare/schema, whose tests hold it.
// Within `schema: 1` fields may be added, so the schema allows members that it does not
// know.
//
// Out of scope: validating. The program writes what its types say; the schema is for those
// who read it.
package schema

import _ "embed"

//go:generate go run ../../compare/schema/internal/generate calibration calibration.schema.json

// Calibration is the schema of calibration.json.
//
//go:embed calibration.schema.json
var Calibration []byte
