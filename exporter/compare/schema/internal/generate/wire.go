package main

import (
	"reflect"

	"github.com/omnitap/omnitap/exporter/compare/gate"
	"github.com/omnitap/omnitap/exporter/stats"
)

// wire are the forms in which types write themselves. A test holds what the types write
// to them.
var wire = map[reflect.Type]reflect.Type{
	reflect.TypeFor[stats.Interval](): reflect.TypeFor[Interval](),
	reflect.TypeFor[stats.Change]():   reflect.TypeFor[Change](),
	reflect.TypeFor[stats.Summary]():  reflect.TypeFor[Summary](),
	reflect.TypeFor[gate.Outcome]():   reflect.TypeFor[Outcome](),
}

// Interval is how stats.Interval is written.
type Interval struct {
	Lo     *float64 `json:"lo"`
	Hi     *float64 `json:"hi"`
	Level  float64  `json:"level"`
	Method string   `json:"method"`
}

// Change is how stats.Change is written.
type Change struct {
	Estimate *float64       `json:"estimate"`
	Interval stats.Interval `json:"interval"`
	N        int            `json:"n"`
	Blocks   int            `json:"blocks"`
	Why      string         `json:"why,omitempty"`
}

// Summary is how stats.Summary is written.
type Summary struct {
	N       int      `json:"n"`
	LeftOut int      `json:"left_out,omitempty"`
	Min     *float64 `json:"min"`
	Mean    *float64 `json:"mean"`
	P50     *float64 `json:"p50"`
	P90     *float64 `json:"p90"`
	P95     *float64 `json:"p95"`
	P99     *float64 `json:"p99"`
	Max     *float64 `json:"max"`
}

// Outcome is how gate.Outcome is written.
type Outcome struct {
	Gate     string       `json:"gate"`
	Flow     string       `json:"flow"`
	Verdict  gate.Verdict `json:"verdict"`
	Allowed  bool         `json:"allowed"`
	Failed   bool         `json:"failed"`
	Limit    float64      `json:"limit"`
	Estimate *float64     `json:"estimate"`
	Lo       *float64     `json:"lo"`
	Hi       *float64     `json:"hi"`
	Reason   string       `json:"reason"`
}
