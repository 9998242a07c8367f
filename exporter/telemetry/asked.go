package telemetry

import "strings"

// Asked says which signals the environment asks for.
type Asked struct{ Traces, Metrics bool }

// Any reports whether anything is asked for.
func (a Asked) Any() bool { return a.Traces || a.Metrics }

// Ask reads from the environment what is asked for. A signal is on where its exporter is
// named (OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER) and is not none, or where no exporter
// is named and an endpoint is, the signal's own or the common one. OTEL_SDK_DISABLED=true
// turns everything off.
func Ask(getenv func(string) string) Asked {
	if strings.EqualFold(strings.TrimSpace(getenv("OTEL_SDK_DISABLED")), "true") {
		return Asked{}
	}
	on := func(signal string) bool {
		switch name := getenv("OTEL_" + signal + "_EXPORTER"); name {
		case "":
			return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
		case "none":
			return false
		}
		return true
	}
	return Asked{Traces: on("TRACES"), Metrics: on("METRICS")}
}
